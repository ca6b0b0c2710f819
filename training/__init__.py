"""Training pipeline of the bundled retriever: data files to ONNX weights, one command a step."""
