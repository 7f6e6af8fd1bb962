rule patch_samples:
    input:
        unpack(made_from("patch_samples")),
    output:
        manifest=output_of("patch_samples", "manifest"),
        store=directory(output_of("patch_samples", "store")),
    log:
        log_of("patch_samples"),
    benchmark:
        benchmark_of("patch_samples")
    conda:
        "../../envs/base.yaml"
    resources:
        mem_mb=memory(1000),
        runtime=minutes(30),
    params:
        spec=spec("patch_samples"),
        code=code("patch_samples"),
    script:
        "../scripts/patch_samples.py"
