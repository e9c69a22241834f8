"""make_model.py FILE writes softmax(Q Kᵀ / √d) V as an ONNX model, for node_server.js."""

import sys

import onnx

TEXT = """
<ir_version: 8, opset_import: ["" : 17]>
attention (float[n,d] Q, float[m,d] K, float[m,dv] V) => (float[n,dv] output, float[n,m] weights) {
    one = Constant <value_ints = [1]> ()
    shape = Shape (Q)
    columns = Gather (shape, one)
    d = Cast <to = 1> (columns)
    root = Sqrt (d)
    transposed = Transpose <perm = [1, 0]> (K)
    scores = MatMul (Q, transposed)
    scaled = Div (scores, root)
    weights = Softmax <axis = -1> (scaled)
    output = MatMul (weights, V)
}
"""

model = onnx.parser.parse_model(TEXT)
onnx.checker.check_model(model, full_check=True)
onnx.save(model, sys.argv[1])
