"""Makes types.gguf and types.safetensors: a tensor of every type that is read, and what the numpy
dequantiser of the PyPI package gguf makes of it. Made with gguf 0.19.0, numpy 2.4.6 and safetensors
0.8.0; run in this folder."""
import numpy as np
from gguf import GGUFWriter, GGMLQuantizationType as T, GGML_QUANT_SIZES
from gguf.quants import dequantize
from safetensors.numpy import save_file

rng = np.random.default_rng(5)
# Where a block's half-precision numbers are, in bytes.
scales = {T.Q4_0: [0], T.Q4_1: [0, 2], T.Q5_0: [0], T.Q5_1: [0, 2], T.Q8_0: [0], T.Q4_K: [0, 2],
          T.Q5_K: [0, 2], T.Q6_K: [208]}
# Subnormal, zero, negative and large ones among the usual.
special = np.array([5.96e-8, 0.0, -1.3e-5, -0.75, 60000.0, 6.1e-5], np.float16)

writer = GGUFWriter("types.gguf", "llama")
right = {}
for kind in [T.F32, T.F16, T.BF16, *scales]:
    elements, size = GGML_QUANT_SIZES[kind]
    rows, blocks = 3, max(2, 64 // elements)
    if kind == T.F32:
        data = rng.standard_normal((rows, blocks)).astype(np.float32)
    elif kind == T.F16:
        data = rng.standard_normal((rows, blocks)).astype(np.float16)
        data[0, :6] = special
    else:
        data = rng.integers(0, 256, (rows, blocks, size), dtype=np.uint8)
        for at in scales.get(kind, []):
            half = (rng.standard_normal((rows, blocks, 1)) * 0.02).astype(np.float16)
            half[0, :2, 0] = special[:2] if at else special[2:4]
            data[:, :, at:at + 2] = half.view(np.uint8)
        if kind == T.BF16:
            data[:, :, 1] &= 0xBF  # no infinity, no NaN
        data = data.reshape(rows, blocks * size)
    raw = None if kind in (T.F32, T.F16) else kind
    writer.add_tensor(kind.name, data, raw_dtype=raw)
    right[kind.name] = dequantize(data, kind).reshape(rows, -1)
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()
save_file(right, "types.safetensors")
