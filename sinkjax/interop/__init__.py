"""Other libraries: their loops, caches and benchmarks run with models of this package."""

from sinkjax.interop.caches import SinkCache as SinkCache
