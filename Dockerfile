# docker build -t pcnn .                          for a CPU
# docker build -t pcnn --build-arg EXTRA=cu13 --build-arg INDEX=https://download.pytorch.org/whl/cu130 .
# docker run --rm -v "$PWD:/work" pcnn predict CLOUDS --out predictions
# docker run --rm --gpus all --shm-size 8g -v "$PWD:/work" pcnn train model=minkunet dataset=kitti
FROM debian:bookworm-slim

# Open3D needs the libraries; on a GPU, Triton builds its launchers with gcc and Python's headers
RUN apt-get update -qq \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
      ca-certificates gcc libc6-dev libegl1 libgl1 libgomp1 libusb-1.0-0 python3 python3-dev \
      python3-venv \
 && rm -rf /var/lib/apt/lists/*

ARG EXTRA=las
ARG INDEX=https://download.pytorch.org/whl/cpu
COPY . /source
RUN python3 -m venv /opt/pcnn \
 && /opt/pcnn/bin/pip install --no-cache-dir --extra-index-url "$INDEX" \
      -c /source/constraints.txt "/source[$EXTRA]" \
 && rm -rf /source \
 && /opt/pcnn/bin/pcnn --version

ENV PATH=/opt/pcnn/bin:$PATH MPLBACKEND=agg
WORKDIR /work
ENTRYPOINT ["pcnn"]
CMD ["--help"]
