rule dual_encoder:
    input:
        unpack(made_from("dual_encoder")),
    output:
        rows=output_of("dual_encoder", "rows"),
        weights=output_of("dual_encoder", "weights"),
        history=output_of("dual_encoder", "history"),
    log:
        log_of("dual_encoder"),
    benchmark:
        benchmark_of("dual_encoder")
    conda:
        "../../envs/torch.yaml"
    threads: threads_of("dual_encoder")
    resources:
        mem_mb=memory(2000),
        runtime=minutes(240),
        gpu=gpus_of("dual_encoder"),
    params:
        spec=spec("dual_encoder"),
        code=code("dual_encoder"),
    script:
        "../scripts/dual_encoder.py"
