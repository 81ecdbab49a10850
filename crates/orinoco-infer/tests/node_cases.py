"""Writes ONNX's operator tests below a folder: <name>/model.onnx, input_0.pb, .., output_0.pb, ..

Tests of sequences, maps and optional values are left out: they are not tensors. Outputs that are as long as what is found
get open axes, as exporters give them: the tests declare what their own inputs hold.
"""
import pathlib
import sys
import warnings

import numpy as np
from onnx import TensorProto, numpy_helper
from onnx.backend.test.case.node import collect_testcases

FINDERS = {"Compress", "NonMaxSuppression", "NonZero", "Unique"}


def main():
    folder = pathlib.Path(sys.argv[1])
    warnings.simplefilter("ignore")
    written = 0
    for case in collect_testcases(None):
        graph = case.model.graph
        if any(not value.type.HasField("tensor_type") for value in [*graph.input, *graph.output]):
            continue
        if len(graph.node) == 1 and graph.node[0].op_type in FINDERS:
            for value in graph.output:
                for axis in value.type.tensor_type.shape.dim:
                    axis.Clear()
        inputs, outputs = case.data_sets[0]
        target = folder / case.name
        target.mkdir()
        (target / "model.onnx").write_bytes(case.model.SerializeToString())
        for kind, values in (("input", inputs), ("output", outputs)):
            for index, value in enumerate(values):
                tensor = value if isinstance(value, TensorProto) else numpy_helper.from_array(np.asarray(value))
                (target / f"{kind}_{index}.pb").write_bytes(tensor.SerializeToString())
        written += 1
    print(written)


main()
