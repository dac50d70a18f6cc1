"""Reports of benchmark tools, in the layouts that the tools write; the numbers are made up.

Each has its name, its text, the options that it needs, and what the profile holds then: model to
batch size to statistics.
"""

from typing import NamedTuple


class Report(NamedTuple):
    file: str
    text: str
    options: tuple[str, ...]
    expected: dict[str, dict[int, dict[str, float]]]


PERF_CSV = ("Concurrency,Inferences/Second,Client Send,Network+Server Send/Recv,Server Queue,"
            "Server Compute Input,Server Compute Infer,Server Compute Output,Client Recv,"
            "p50 latency,p90 latency,p95 latency,p99 latency\n")
PERF_ROWS = {1: "1,198.2,40,310,25,60,4500,30,8,4950,5200,5400,6100\n",
             4: "1,521.5,45,420,26,95,6950,44,9,7600,7900,8020,8800\n",
             8: "1,741.3,60,560,27,150,9850,60,11,10700,11000,11300,12100\n"}
PERF_CONSOLE = """\
*** Measurement Settings ***
  Batch size: 2
  Service Kind: TRITON
  Using "time_windows" mode for stabilization
  Measurement window: 5000 msec
  Using synchronous calls for inference

Request concurrency: 1
  Pass [1] throughput: 398.0 infer/sec. Avg latency: 5010 usec (std 210 usec)
  Client:
    Request count: 3590
    Throughput: 398.6 infer/sec
    Avg latency: 5004 usec (standard deviation 205 usec)
    p50 latency: 4980 usec
    p90 latency: 5210 usec
    p95 latency: 5330 usec
    p99 latency: 5790 usec
    Avg HTTP time: 4998 usec (send/recv 80 usec + response wait 4918 usec)
  Server:
    Inference count: 7180
    Execution count: 3590
    Avg request latency: 4800 usec (overhead 9 usec + queue 30 usec + compute input 61 usec)

Request concurrency: 2
  Client:
    Request count: 4100
    Throughput: 455.6 infer/sec
    Avg latency: 8770 usec (standard deviation 305 usec)
    p95 latency: 9330 usec

Inferences/Second vs. Client Average Batch Latency
Concurrency: 1, throughput: 398.6 infer/sec, latency 5004 usec
Concurrency: 2, throughput: 455.6 infer/sec, latency 8770 usec
"""
PERF_CONSOLE_1 = PERF_CONSOLE.replace("size: 2", "size: 1").replace("398.6 infer", "199.3 infer")
OPENVINO_CSV = """\
Command line parameters
b;1
d;CPU
m;small.xml
api;sync

Configuration setup
topology;small
target device;CPU
API;sync
batch size;1
number of iterations;1500
number of parallel infer requests;1
duration (ms);15000

Execution results
read model time (ms);12.40
compile model time (ms);210.50
total execution time (ms);15003.2
total number of iterations;1500
latency (ms);9.91
Average latency (ms);9.98
Min latency (ms);9.10
Max latency (ms);18.20
throughput;100.1
"""
OPENVINO_JSON = """\
{"cmd_options": {"b": "4", "d": "CPU", "m": "small.xml"},
 "configuration_setup": {"topology": "small", "batch_size": 4, "nireq": 1},
 "execution_results": {"execution_time": 20000.1, "iterations_num": 700,
  "percentile_boundary": 50, "latency_median": 28.1, "latency_avg": 28.5, "latency_min": 26.5,
  "latency_max": 60.9, "throughput": 140.1}}
"""
OPENVINO_CONSOLE = """\
[Step 10/11] Measuring performance (Start inference synchronously, limits: 60000 ms duration)
[ INFO ] First inference took 12.30 ms
[Step 11/11] Dumping statistics report
[ INFO ] Execution Devices:['CPU']
[ INFO ] Count:            1413 iterations
[ INFO ] Duration:         15008.32 ms
[ INFO ] Latency:
[ INFO ]    Median:        10.45 ms
[ INFO ]    Average:       10.60 ms
[ INFO ]    Min:           8.79 ms
[ INFO ]    Max:           16.95 ms
[ INFO ] Throughput:   94.15 FPS
"""
TRTEXEC = """\
&&&& RUNNING TensorRT.trtexec [TensorRT v100300] # trtexec --onnx=m/small.onnx --shapes=x:{0}x3x8x8
[01/30/2026-15:30:36] [I] === Inference Options ===
[01/30/2026-15:30:36] [I] Batch: Explicit
[01/30/2026-15:30:36] [I] Input inference shape : x={0}x3x8x8
[01/30/2026-15:30:36] [I] Inference Streams: 1
[01/30/2026-15:30:38] [I] Engine deserialized in 0.25 sec.
[01/30/2026-15:30:40] [I] === Performance summary ===
[01/30/2026-15:30:40] [I] Throughput: 184.2 qps
[01/30/2026-15:30:40] [I] Latency: min = 5.2 ms, max = 6.9 ms, mean = 5.4 ms, \
median = 5.35 ms, percentile(90%) = 5.6 ms, percentile(95%) = 5.7 ms, percentile(99%) = 6.3 ms
[01/30/2026-15:30:40] [I] Enqueue Time: min = 0.5 ms, max = 1.1 ms, mean = 0.7 ms, \
median = 0.66 ms, percentile(90%) = 0.8 ms, percentile(95%) = 0.9 ms, percentile(99%) = 1 ms
[01/30/2026-15:30:40] [I] GPU Compute Time: min = 5 ms, max = 6 ms, mean = 5.1 ms, \
median = 5.1 ms, percentile(90%) = 5.3 ms, percentile(95%) = 5.4 ms, percentile(99%) = 5.9 ms
"""
TFLITE = """\
STARTING!
Graph: [models/small.tflite]
Initialized session in 5.685ms.
Running benchmark for at least 1 iterations and at least 0.5 seconds.
count=30 first=18535 curr=16012 min=15930 max=18535 avg=16462.3 std=512

Running benchmark for at least 50 iterations and at least 1 seconds.
count=620 first=16120 curr=16015 min=15902 max=17211 avg=16175.2 std=220

Inference timings in us: Init: 5685, First inference: 18535, Warmup (avg): 16462.3, \
Inference (avg): 16175.2
"""
TORCH = """\
<torch.utils.benchmark.utils.common.Measurement object at 0x7f2b0c>
model(x)
setup: x = torch.rand(8, 3, 224, 224)
  Median: 12.37 ms
  IQR:    0.33 ms (12.26 to 12.59)
  160 measurements, 10 runs per measurement, 1 thread
"""
HYPERFINE = """\
{"results": [
 {"command": "./infer --model small --batch 1", "mean": 0.0316, "stddev": 0.0018,
  "median": 0.03115, "user": 0.02, "system": 0.01, "min": 0.0301, "max": 0.0342,
  "times": [0.0301, 0.0311, 0.0312, 0.0342], "exit_codes": [0, 0, 0, 0]},
 {"command": "./infer --model small --batch 4", "mean": 0.0617, "stddev": 0.0018,
  "median": 0.06115, "user": 0.02, "system": 0.01, "min": 0.0601, "max": 0.0643,
  "times": [0.0601, 0.0611, 0.0612, 0.0644], "exit_codes": [0, 0, 0, 0]}]}
"""
PYTEST = """\
{"machine_info": {"node": "n", "processor": "x86_64"}, "commit_info": {"id": "abc"},
 "benchmarks": [
 {"group": null, "name": "test_small[1]", "fullname": "t.py::test_small[1]",
  "params": {"batch": 1},
  "stats": {"min": 0.004, "max": 0.006, "mean": 0.0048, "stddev": 0.0002, "rounds": 200,
   "median": 0.0047, "iqr": 0.0001, "ld15iqr": 0.004, "hd15iqr": 0.006, "iterations": 1}},
 {"group": null, "name": "test_small[4]", "fullname": "t.py::test_small[4]",
  "params": {"batch": 4},
  "stats": {"min": 0.012, "max": 0.016, "mean": 0.0128, "stddev": 0.0002, "rounds": 150,
   "median": 0.0127, "iqr": 0.0001, "ld15iqr": 0.012, "hd15iqr": 0.016, "iterations": 1}}],
 "datetime": "2026-01-01T00:00:00", "version": "5.1.0"}
"""
GOOGLE = """\
{"context": {"host_name": "h", "num_cpus": 8, "library_build_type": "release"}, "benchmarks": [
 {"name": "BM_small/1", "run_name": "BM_small/1", "run_type": "iteration", "threads": 1,
  "iterations": 120, "real_time": 5.8e6, "cpu_time": 5.7e6, "time_unit": "ns"},
 {"name": "BM_small/batch:8", "run_name": "BM_small/batch:8", "run_type": "iteration",
  "iterations": 130, "real_time": 23.5, "cpu_time": 22.9, "time_unit": "ms"},
 {"name": "BM_small/batch:8_mean", "run_name": "BM_small/batch:8", "run_type": "aggregate",
  "aggregate_name": "mean", "iterations": 3, "real_time": 24.0, "time_unit": "ms"}]}
"""
OPTIMUM = """\
{"config": {"backend": {"name": "pytorch", "model": "small"},
  "scenario": {"name": "inference", "input_shapes": {"batch_size": 1, "sequence_length": 128}}},
 "report": {"load_model": {"latency": {"unit": "s", "values": [1.2], "count": 1, "mean": 1.2}},
  "forward": {"memory": null, "latency": {"unit": "s", "values": [0.020, 0.022, 0.021, 0.025],
   "count": 4, "mean": 0.022, "p50": 0.0215, "p90": 0.0241, "p95": 0.02455, "p99": 0.0249,
   "stdev": 0.0019}}}}
"""
GENAI = """\
Metric,avg,min,max,p99,p95,p90,p75,p50,p25
Request Latency (ms),44.2,40.1,60.3,58.9,55.0,50.2,45.0,43.9,42.0

Metric,Value
Request Throughput (per sec),22.5
Request Count (count),100
"""
DYNAMO = """\
dev,name,batch_size,speedup,abs_latency,compilation_latency,compression_ratio,eager_peak_mem
cuda,small,1,1.52,2.31,12.1,0.93,0.2
cuda,small,16,1.32,4.31,12.1,0.93,0.2
"""
ORT = """\
engine,version,providers,device,precision,optimizer,io_binding,model_name,inputs,threads,batch_size,\
sequence_length,custom_layer_num,datetime,test_times,latency_variance,latency_90_percentile,\
latency_95_percentile,latency_99_percentile,average_latency_ms,QPS
onnxruntime,1.17.0,CPU,cpu,FLOAT32,by_ort,False,small,1,8,1,128,,2026-01-01 10:00:00,100,0.00,\
15.20,15.60,16.90,14.50,68.97
"""
AB_REPORT = """\
Benchmark,Batch size,Batch delay,Workers,Model,Concurrency,Input,Requests,TS failed requests,\
TS throughput,TS latency P50,TS latency mean,Model_p50,Model_p90,Model_p99,predict_mean,\
handler_time_mean,waiting_time_mean
AB,1,200,1,https://example.org/mar/small.mar,10,kitten.jpg,1000,0,95.3,104,105.1,38.2,40.5,44.1,39.0,\
38.9,60.1
"""
TORCHSERVE = "".join(
    f"2026-03-04T14:39:{second:02},273 [INFO ] W-9000-small_1.0-stdout MODEL_METRICS - "
    f"{metric}.ms:{took}|#ModelName:small,Level:Model|#hostname:host-a,"
    f"requestID:{','.join(f'{second}-{i}' for i in range(batch))},timestamp:1772635168\n"
    for second, (batch, took) in enumerate([(1, 10.5), (1, 11.5), (4, 20.5), (4, 21.5)])
    for metric in ("HandlerTime", "PredictionTime"))
TRITON = """\
# TYPE nv_inference_count counter
nv_inference_count{model="small",version="1"} 4000
# TYPE nv_inference_exec_count counter
nv_inference_exec_count{model="small",version="1"} 1000
# TYPE nv_inference_queue_duration_us counter
nv_inference_queue_duration_us{model="small",version="1"} 3000000
# TYPE nv_inference_compute_input_duration_us counter
nv_inference_compute_input_duration_us{model="small",version="1"} 100000
# TYPE nv_inference_compute_infer_duration_us counter
nv_inference_compute_infer_duration_us{model="small",version="1"} 5800000
# TYPE nv_inference_compute_output_duration_us counter
nv_inference_compute_output_duration_us{model="small",version="1"} 50000
"""
TRITON_1 = TRITON.replace(" 4000", " 1000")

REPORTS = {
    "perf_analyzer CSV": Report(
        "perf_b1.csv", PERF_CSV + PERF_ROWS[1] + PERF_ROWS[4].replace("1,", "8,", 1), (),
        {"perf": {1: {"mean_ms": 4.973, "p50_ms": 4.95, "p95_ms": 5.4, "p99_ms": 6.1}}}),
    "perf_analyzer console": Report(
        "perf.txt", PERF_CONSOLE_1, (),
        {"perf": {1: {"mean_ms": 5.004, "std_ms": 0.205, "p95_ms": 5.33, "n": 3590}}}),
    "OpenVINO CSV": Report("report.csv", OPENVINO_CSV, (), {"small": {1: {
        "mean_ms": 9.98, "p50_ms": 9.91, "min_ms": 9.1, "max_ms": 18.2, "n": 1500}}}),
    "OpenVINO JSON": Report("report.json", OPENVINO_JSON, ("--batch", "4"), {"small": {
        1: {"mean_ms": 28.5}, 4: {"mean_ms": 28.5, "p50_ms": 28.1, "n": 700}}}),
    "OpenVINO console": Report("openvino.txt", OPENVINO_CONSOLE, ("--batch", "1"), {"openvino": {
        1: {"mean_ms": 10.6, "p50_ms": 10.45, "n": 1413}}}),
    "trtexec console": Report("trtexec.txt", TRTEXEC.format(4), (), {"small": {
        1: {"p95_ms": 5.7}, 4: {"mean_ms": 5.4, "p50_ms": 5.35, "p95_ms": 5.7, "p99_ms": 6.3}}}),
    "TFLite": Report("tflite.txt", TFLITE, ("--batch", "1"), {"small": {
        1: {"mean_ms": 16.1752, "std_ms": 0.22, "min_ms": 15.902, "n": 620}}}),
    "torch.utils.benchmark": Report("torch.txt", TORCH, ("--batch", "1"), {"torch": {
        1: {"p50_ms": 12.37, "n": 160}}}),
    "hyperfine": Report("hyperfine.json", HYPERFINE, (), {"small": {
        1: {"mean_ms": 31.65, "n": 4}, 4: {"mean_ms": 61.7, "max_ms": 64.4}}}),
    "pytest-benchmark": Report("pytest.json", PYTEST, (), {"test_small": {
        1: {"mean_ms": 4.8, "n": 200}, 4: {"mean_ms": 12.8, "p50_ms": 12.7, "n": 150}}}),
    "Google Benchmark": Report("google.json", GOOGLE, (), {"BM_small": {
        1: {"mean_ms": 5.8, "n": 120}, 8: {"mean_ms": 23.5, "n": 130}}}),
    "optimum-benchmark": Report("optimum.json", OPTIMUM, (), {"small": {
        1: {"mean_ms": 22.0, "max_ms": 25.0, "n": 4}}}),
    "GenAI-Perf CSV": Report("genai.csv", GENAI, ("--batch", "1"), {"genai": {
        1: {"mean_ms": 44.2, "p50_ms": 43.9, "p90_ms": 50.2, "p95_ms": 55.0, "p99_ms": 58.9}}}),
    "PyTorch dynamo": Report("dynamo.csv", DYNAMO, (), {"small": {
        1: {"mean_ms": 2.31}, 16: {"mean_ms": 4.31}}}),
    "onnxruntime transformers": Report("ort.csv", ORT, (), {"small": {
        1: {"mean_ms": 14.5, "p95_ms": 15.6, "n": 100}}}),
    "TorchServe ab_report": Report("ab_report.csv", AB_REPORT, (), {"small": {
        1: {"mean_ms": 38.9, "p50_ms": 38.2, "p99_ms": 44.1}}}),
    "TorchServe log": Report("model_metrics.log", TORCHSERVE, (), {"small": {
        1: {"mean_ms": 11.0, "n": 2}, 4: {"mean_ms": 21.0, "n": 2}}}),
    "Triton counters": Report("metrics.txt", TRITON_1, (), {"small": {
        1: {"mean_ms": 5.95, "n": 1000}}}),
}
