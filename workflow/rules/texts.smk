rule captions:
    input:
        unpack(made_from("captions")),
    output:
        texts=output_of("captions", "texts"),
    log:
        log_of("captions"),
    conda:
        "../../envs/base.yaml"
    resources:
        mem_mb=memory_of("captions"),
        units=units_of("captions"),
    params:
        spec=spec("captions"),
        code=code("captions"),
    script:
        "../scripts/captions.py"


rule text_embeddings:
    input:
        unpack(made_from("text_embeddings")),
    output:
        manifest=output_of("text_embeddings", "manifest"),
        store=directory(output_of("text_embeddings", "store")),
    log:
        log_of("text_embeddings"),
    conda:
        "../../envs/torch.yaml"
    threads: threads_of("text_embeddings")
    resources:
        mem_mb=memory_of("text_embeddings"),
        units=units_of("text_embeddings"),
        gpu=gpus_of("text_embeddings"),
    params:
        spec=spec("text_embeddings"),
        code=code("text_embeddings"),
    script:
        "../scripts/text_embeddings.py"


rule joint:
    input:
        unpack(made_from("joint")),
    output:
        manifest=output_of("joint", "manifest"),
        store=directory(output_of("joint", "store")),
    log:
        log_of("joint"),
    conda:
        "../../envs/torch.yaml"
    threads: threads_of("joint")
    resources:
        mem_mb=memory_of("joint"),
        units=units_of("joint"),
        gpu=gpus_of("joint"),
    params:
        spec=spec("joint"),
        code=code("joint"),
    script:
        "../scripts/joint.py"
