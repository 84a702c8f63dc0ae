"""The demo's and the benchmarks' training job: real images, a residual network, plain DDP and balanced."""
