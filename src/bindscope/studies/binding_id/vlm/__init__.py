"""Vision-language models of transformers as engines: reference (hooks) and fast (KV cache)."""
