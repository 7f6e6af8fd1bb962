"""Study three: how embeddings bind concepts, and models that are trained to."""
