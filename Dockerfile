# The workflow with its locked environment; it writes to /work (docs/install.md, "Container").
FROM python:3.11.14-slim-bookworm

RUN apt-get update \
    && apt-get install --yes --no-install-recommends make \
    && rm -rf /var/lib/apt/lists/*

COPY . /opt/bindscope
WORKDIR /opt/bindscope
RUN make setup

# A small run tries the image, and compiles what is imported: its user may not be able to.
RUN mkdir /tmp/try \
    && cd /tmp/try \
    && /opt/bindscope/.venv/bin/python -m bindscope.commands.run \
        --snakefile /opt/bindscope/Snakefile --configfile /opt/bindscope/config/presets/ci.yaml \
    && rm -rf /tmp/try

# A user whom the image does not know has no name and no home; caches stay with the results.
ENV LOGNAME=bindscope HOME=/work
WORKDIR /work
VOLUME /work
ENTRYPOINT ["/opt/bindscope/.venv/bin/python", "-m", "bindscope.commands.run", "--snakefile", "/opt/bindscope/Snakefile"]
