rule download:
    output:
        manifest=output_of("download", "manifest"),
    log:
        log_of("download"),
    # What cannot be had is known before anything is computed.
    priority: 100
    conda:
        "../../envs/base.yaml"
    resources:
        mem_mb=memory_of("download"),
        units=units_of("download"),
    params:
        spec=spec("download"),
        code=code("download"),
    script:
        "../scripts/download.py"


rule records:
    input:
        unpack(made_from("records")),
    output:
        rows=output_of("records", "rows"),
    log:
        log_of("records"),
    conda:
        "../../envs/base.yaml"
    resources:
        mem_mb=memory_of("records"),
        units=units_of("records"),
    params:
        spec=spec("records"),
        code=code("records"),
    script:
        "../scripts/records.py"


rule record_codes:
    input:
        unpack(made_from("record_codes")),
    output:
        manifest=output_of("record_codes", "manifest"),
        store=directory(output_of("record_codes", "store")),
    log:
        log_of("record_codes"),
    conda:
        "../../envs/base.yaml"
    resources:
        mem_mb=memory_of("record_codes"),
        units=units_of("record_codes"),
    params:
        spec=spec("record_codes"),
        code=code("record_codes"),
    script:
        "../scripts/record_codes.py"


rule record_scenes:
    input:
        unpack(made_from("record_scenes")),
    output:
        manifest=output_of("record_scenes", "manifest"),
        store=directory(output_of("record_scenes", "store")),
    log:
        log_of("record_scenes"),
    # As of `scenes`.
    priority: 6
    conda:
        "../../envs/base.yaml"
    resources:
        mem_mb=memory_of("record_scenes"),
        units=units_of("record_scenes"),
    params:
        spec=spec("record_scenes"),
        code=code("record_scenes"),
    script:
        "../scripts/record_scenes.py"


rule counted_priors:
    input:
        unpack(made_from("counted_priors")),
    output:
        rows=output_of("counted_priors", "rows"),
    log:
        log_of("counted_priors"),
    conda:
        "../../envs/base.yaml"
    resources:
        mem_mb=memory_of("counted_priors"),
        units=units_of("counted_priors"),
    params:
        spec=spec("counted_priors"),
        code=code("counted_priors"),
    script:
        "../scripts/counted_priors.py"


rule counted_anchors:
    input:
        unpack(made_from("counted_anchors")),
    output:
        manifest=output_of("counted_anchors", "manifest"),
        store=directory(output_of("counted_anchors", "store")),
    log:
        log_of("counted_anchors"),
    conda:
        "../../envs/base.yaml"
    resources:
        mem_mb=memory_of("counted_anchors"),
        units=units_of("counted_anchors"),
    params:
        spec=spec("counted_anchors"),
        code=code("counted_anchors"),
    script:
        "../scripts/counted_anchors.py"
