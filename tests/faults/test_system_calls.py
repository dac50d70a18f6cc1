"""One call of each kind that a worker's start makes fails, and nothing is lost by it."""


import pytest

from tests.faults.system_calls import Fault, can_trace, failing, served, usual_s

for library in ("starlette", "uvicorn", "prometheus_client", "orjson"):
    pytest.importorskip(library)

STARTS = (Fault("socketpair", "EMFILE", 1), Fault("pipe2", "EMFILE", 1),
          Fault("vfork", "EAGAIN", 1), Fault("pidfd_open", "EMFILE", 1),
          Fault("openat", "EMFILE", 1), Fault("sendmsg", "ENOBUFS", 1), Fault("poll", "ENOMEM", 1),
          Fault("accept4", "EMFILE", 2), Fault("getsockname", "ENOBUFS", 2),
          Fault("close", "EIO", 1), Fault("close", "EIO", 2),
          Fault("openat", "EMFILE", 50, in_workers=True))


@pytest.mark.slow
@pytest.mark.skipif(not can_trace(), reason="needs strace")
def test_a_system_call_that_fails_once_costs_no_request_its_answer(tmp_path):
    with served(tmp_path) as server:
        usual = {also: usual_s(server, in_workers=also) for also in (False, True)}
        outcomes = {str(fault): failing(server, fault, usual[fault.in_workers])
                    for fault in STARTS}
    assert outcomes == {str(fault): (True, []) for fault in STARTS}
