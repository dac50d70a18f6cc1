"""Layouts of benchmark tools' reports: patterns of the figures in each report.

Patterns are regular expressions of Python, with ``^`` and ``$`` at each line. ``#`` stands for a
number; for times it matches anything, so that invalid times are refused and not skipped. JSON and
CSV are matched as lines ``key.of.keys: value``, one for each value of a record.

Sources of the layouts: the tools' documentation and the code that writes their reports.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Tool:
    """Benchmark tool with the layout of its report."""

    name: str
    # Found at the beginning of each report of the tool, and of no other.
    mark: str
    # Where each figure stands: statistics of a batch's time; n (samples); batch; model; flight
    # (requests in flight); load (time to load the model); rate (inputs per second); requests
    # (per second); part (of the mean, which is their sum); unit (of times that have none).
    figures: Mapping[str, str]
    # Unit of times without one.
    unit: str = "ms"
    # The text of one run; what does not fit is of none. By default the whole text is one run.
    run: str = ""
    # Whether the last run counts alone.
    last_run: bool = False
    # Found in a report that was not cut off.
    end: str = ""
    # Where the records of a JSON report are, as a.b; "csv": rows below a header.
    records: str = ""
    # Key of a record's samples.
    samples: str = ""
    # Found in records that are no runs.
    no_run: str = ""
    # Why no profile can be made of the report.
    refused: str = ""
    # What a reader of the profile has to know.
    notes: tuple[str, ...] = ()
    # Whether what is measured takes batches of one size, so that smaller ones are padded.
    one_size: bool = False
    # How to run the tool with one request at a time, or what to give instead.
    alone: str = "a run with one request at a time"


_CLIENT = "latencies are as a client sees them, with the way to the server and back"
_ARGUMENT = r"(?:batch_?size|batch|bs|b)"

TOOLS = (
    Tool(
        "perf_analyzer's console output", r"^\*\*\* Measurement Settings \*\*\*|"
        r"^Request concurrency: \d+$|^Concurrency: \d+, throughput: ",
        {"flight": r"^Request concurrency: #$", "batch": r"^\s+Batch size: #$",
         "n": r"^\s+Request count: #", "mean": r"^\s+Avg latency: #",
         "std": r"^\s+Avg latency: .*standard deviation #",
         **{f"p{level}": rf"^\s+p{level} latency: #" for level in (50, 90, 95, 99)},
         "rate": r"^\s+Throughput: # infer/sec", "model": r"^\s+Model(?: name)?: (\S+)$"},
        unit="us", end=r"^Inferences/Second vs",
        run=r"^Request (?:concurrency|rate): \d.*?(?=^Request (?:concurrency|rate): \d|"
        r"^Inferences/Second vs|\Z)",
        notes=(_CLIENT,), alone="perf_analyzer --concurrency-range 1"),
    Tool(
        "perf_analyzer's CSV of -f", r"\A(?:Concurrency|Request Rate),Inferences/Second,",
        {"flight": r"^Concurrency: #$", "rate": r"^Inferences/Second: #$",
         "mean": r"^Avg latency: #$",
         "part": r"^(?:Client Send|Network\+Server Send/Recv|Server Queue|Server Compute \w+|"
                 r"Client Recv): #$",
         **{f"p{level}": rf"^p{level} latency: #$" for level in (50, 90, 95, 99)},
         "batch": r"^Batch(?: size)?: #$", "model": r"^Model: (.+)$"},
        unit="us", records="csv", notes=(_CLIENT,), alone="perf_analyzer --concurrency-range 1"),
    Tool(
        "OpenVINO's benchmark_app", r'^\[Step \d+/\d+\]|^\[ INFO \] Count: +\d+ iterations|'
        r'^Command line parameters;?$|^Execution results;?$|^\s*"execution_results": ?\{',
        {"mean": r"Average(?: latency \(ms\);|: +)#|average latency \(ms\);#|latency_avg: #$",
         "p50": r"Median: +#|^latency \(ms\);#|^Median latency \(ms\);#|latency_median: #$",
         **{f"p{level}": rf"^(?:\[ INFO \] +)?{level} percentile: +#|"
                         rf"latency \({level} percentile\)(?: \(ms\))?;#|"
                         rf"latency_{level}_percentile: #$" for level in (90, 95, 99)},
         "min": r"Min(?: latency \(ms\);|: +)#|latency_min: #$",
         "max": r"Max(?: latency \(ms\);|: +)#|latency_max: #$",
         "n": r"Count: +# iterations|^total number of iterations;#|"
              r"execution_results\.iterations_num: #$",
         "batch": r"Model batch size: #|^batch size;#|configuration_setup\.batch_size: #$",
         "flight": r", # inference requests|^number of parallel infer requests;#|"
                   r"configuration_setup\.nireq: #$",
         "model": r"^topology;(\S+)$|configuration_setup\.topology: (\S+)$",
         "rate": r"^throughput;#|Throughput: +# FPS|execution_results\.throughput: #$",
         "load": r"(?:Compile|Load) model took #|^(?:compile|load) model time \(ms\);#"},
        records=".", one_size=True, end=r'"throughput": |^throughput;|Throughput: ',
        notes=("latencies of benchmark_app: inference alone, nothing of a server",),
        alone="benchmark_app -api sync, or -nireq 1"),
    Tool(
        "trtexec's console output", r"TensorRT\.trtexec|=== Performance summary ===|"
        r"\[I\] Latency: min = ",
        {**{ours: rf"\[I\] Latency: .*\b{theirs} = #" for ours, theirs in
            (("mean", "mean"), ("min", "min"), ("max", "max"), ("p50", "median"))},
         **{f"p{level}": rf"\[I\] Latency: .*percentile\({level}%\) = #"
            for level in (90, 95, 99)},
         "batch": r"Input inference shape *: *\S+=#x|--batch=#|\[I\] Batch: #$",
         "model": r"--(?:loadEngine|onnx|saveEngine|deploy|uff)=(?:\S*[/\\])?(\S+?)"
                  r"(?:\.engine|\.plan|\.trt|\.onnx)?(?=\s|$)",
         "flight": r"\[I\] Inference Streams: #$|--(?:infStreams|streams)=#",
         "load": r"Engine (?:deserialized|loaded) in # sec"},
        one_size=True, end=r"\[I\] GPU Compute Time: .*",
        notes=("latency of trtexec: input to the GPU, computation, output back; nothing of a "
               "server", "the batch size is the first dimension of the inputs"),
        alone="trtexec --infStreams=1"),
    Tool(
        "TFLite's benchmark_model", r"^(?:INFO: )?Inference timings in us: |^Graph: \[|"
        r"count=\d+ first=\d+ .*avg=",
        {"n": r"count=# ", "mean": r" avg=#", "min": r" min=#", "max": r" max=#",
         "std": r" std=#", "p50": r" median=#", "p95": r" p95=#",
         "model": r"^(?:INFO: )?Graph: \[(?:[^\]\n]*/)?([^\]\n]+?)(?:\.tflite)?\]",
         "load": r"Initialized session in #"},
        unit="us", end=r"\bstd=\d+", last_run=True,
        run=r"^(?:INFO: )?(?:Timings \(microseconds\): )?count=\d+ first=[^\n]*",
        notes=("the last line of timings is taken: those before it are of the warm-up",)),
    Tool(
        "torch.utils.benchmark's Measurement", r"<torch\.utils\.benchmark\.|"
        r"^  \d+ measurements?, \d+ runs ",
        {"p50": r"^  Median: #", "mean": r"^  #$", "n": r"^  # measurements, "},
        run=r"^  (?:Median: [^\n]*\n[^\n]*|[0-9.]+ \w+)\n  \d+ measurements?, \d+ runs [^\n]*"),
    Tool(
        "hyperfine's JSON", r'"exit_codes": ?\[|"stddev": ?[\d.e-]+,\s*"median": ?[\d.e-]+,'
        r'\s*"user"',
        {"mean": r"^mean: #$", "std": r"^stddev: #$", "p50": r"^median: #$", "min": r"^min: #$",
         "max": r"^max: #$",
         "batch": rf"^parameters\.{_ARGUMENT}: #$|^command: .*\s--?{_ARGUMENT}[ =]#\b",
         "model": r"^parameters\.model: (.+)$|^command: .*\s--model[ =](\S+)"},
        unit="s", records="results", samples="times",
        notes=("times of hyperfine are of whole commands, the start of the process among them",)),
    Tool(
        "pytest-benchmark's JSON", r'"ld15iqr" ?:',
        {"mean": r"^stats\.mean: #$", "std": r"^stats\.stddev: #$", "p50": r"^stats\.median: #$",
         "min": r"^stats\.min: #$", "max": r"^stats\.max: #$", "n": r"^stats\.rounds: #$",
         "batch": rf"^(?:params|extra_info)\.{_ARGUMENT}: #$",
         "model": r"^(?:params|extra_info)\.model: (.+)$|^name: ([^\[\n]+)"},
        unit="s", records="benchmarks", samples="stats.data"),
    Tool(
        "Google Benchmark's JSON", r'"library_build_type" ?:',
        {"mean": r"^real_time: #$", "unit": r"^time_unit: (\w+)$", "n": r"^iterations: #$",
         "batch": rf"^run_name: [^/\n]+/(?:{_ARGUMENT}:)?#(?:/|$)",
         "model": r"^run_name: ([^/\n]+)"},
        records="benchmarks", no_run=r"^run_type: aggregate$",
        notes=("the batch size is the first argument of each benchmark",)),
    Tool(
        "optimum-benchmark's report", r'"forward": ?\{\s*"(?:memory|latency)"',
        {**{ours: rf"forward\.latency\.{theirs}: #$" for ours, theirs in
            (("mean", "mean"), ("std", "stdev"), ("p50", "p50"), ("p90", "p90"), ("p95", "p95"),
             ("p99", "p99"), ("n", "count"))},
         "load": r"load_model\.latency\.mean: #$",
         "batch": r"(?:scenario|benchmark)\.input_shapes\.batch_size: #$",
         "model": r"backend\.model: (.+)$"},
        unit="s", records=".", samples="forward.latency.values"),
    Tool(
        "GenAI-Perf's CSV", r"\AMetric,avg,min,max,p99,p95,p90,p75,p50,p25$",
        {ours: r"^Request Latency \(ms\)," + "[^,\n]+," * place + "#" for place, ours in
         enumerate(("mean", "min", "max", "p99", "p95", "p90", "", "p50")) if ours}
        | {"requests": r"^Request Throughput \(per sec\),#", "n": r"^Request Count \(count\),#"},
        notes=(_CLIENT,)),
    Tool(
        "PyTorch's benchmarks/dynamo CSV", r"\Adev,name,batch_size,[^\n]*\babs_latency\b",
        {"mean": r"^abs_latency: #$", "batch": r"^batch_size: #$", "model": r"^name: (.+)$"},
        records="csv"),
    Tool(
        "the CSV of onnxruntime's transformers benchmark",
        r"\Aengine,version,providers,device,precision,[^\n]*average_latency_ms",
        {"mean": r"^average_latency_ms: #$", "n": r"^test_times: #$", "batch": r"^batch_size: #$",
         **{f"p{level}": rf"^latency_{level}_percentile: #$" for level in (90, 95, 99)},
         "model": r"^model_name: (.+)$"},
        records="csv"),
    Tool(
        "TorchServe's ab_report.csv", r"\ABenchmark,Batch size,Batch delay,[^\n]*predict_mean",
        {"mean": r"^handler_time_mean: #$", "batch": r"^Batch size: #$", "p50": r"^Model_p50: #$",
         "p90": r"^Model_p90: #$", "p99": r"^Model_p99: #$",
         "model": r"^Model: (?:.*/)?([^/\n]+?)(?:\.mar)?$"},
        records="csv",
        notes=("handler times, without waiting; batches are full where concurrency is high",)),
    Tool(
        "Nsight Systems' summary of kernels",
        r"\ATime ?\(%\),Total Time \(ns\),(?:Instances|Num Calls),", {},
        refused="times of kernels, not of batches",
        alone="times of whole batches"),
    Tool(
        "Nsight Systems' kernel trace", r"\AStart \(\w+\),Duration \(\w+\),CorrId,", {},
        refused="times of kernels, not of batches",
        alone="times of whole batches; ramsis.studies.sharing.gpu.nsight.read_kernel_trace reads "
              "this file for its occupancy"),
    Tool(
        "Prometheus' answer to a query of a range", r'"resultType": ?"(?:matrix|vector)"', {},
        refused="values over time, not times of batches",
        alone="the histogram of service times itself, as /metrics gives it; a rate over time is a "
              "load, for --trace"),
    Tool(
        "the JSON of vLLM's latency benchmark",
        r'"avg_latency": ?[\d.e-]+,\s*"latencies": ?\[', {},
        refused="times of generated text: how long an answer takes depends on its length",
        alone="an embedding endpoint, by `vllm bench serve --max-concurrency 1 --save-result`"),
)
