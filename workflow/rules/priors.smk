rule priors:
    output:
        rows=output_of("priors", "rows"),
    log:
        log_of("priors"),
    conda:
        "../../envs/base.yaml"
    resources:
        mem_mb=memory_of("priors"),
        units=units_of("priors"),
    params:
        spec=spec("priors"),
        code=code("priors"),
    script:
        "../scripts/priors.py"


rule anchors:
    input:
        unpack(made_from("anchors")),
    output:
        manifest=output_of("anchors", "manifest"),
        store=directory(output_of("anchors", "store")),
    log:
        log_of("anchors"),
    conda:
        "../../envs/base.yaml"
    resources:
        mem_mb=memory_of("anchors"),
        units=units_of("anchors"),
    params:
        spec=spec("anchors"),
        code=code("anchors"),
    script:
        "../scripts/anchors.py"


rule labels:
    input:
        unpack(made_from("labels")),
    output:
        labels=output_of("labels", "labels"),
    log:
        log_of("labels"),
    conda:
        "../../envs/base.yaml"
    resources:
        mem_mb=memory_of("labels"),
        units=units_of("labels"),
    params:
        spec=spec("labels"),
        code=code("labels"),
    script:
        "../scripts/labels.py"
