"""Training data: tokenizers, samplers, mock and indexed datasets. Start reading at `spec`."""
