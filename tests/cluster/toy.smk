# The rules that the profile is tried on: a job for the GPU, one that needs more on its second
# attempt, and a group. Shell only, so that they cost nothing.


rule all:
    input:
        "on_gpu.txt",
        "grown.txt",
        expand("fit-{number}.txt", number=range(3)),


rule on_gpu:
    output:
        "on_gpu.txt",
    resources:
        gpu=1,
        mem_mb=100,
        runtime=10,
    shell:
        "echo done > {output}"


rule grown:
    output:
        "grown.txt",
    resources:
        mem_mb=lambda wildcards, attempt: 100 * attempt,
        runtime=lambda wildcards, attempt: 10 * attempt,
    shell:
        "test {resources.mem_mb} -gt 100 && echo {resources.mem_mb} > {output}"


rule fit:
    output:
        "fit-{number}.txt",
    resources:
        mem_mb=100,
        runtime=10,
    shell:
        "echo {wildcards.number} > {output}"
