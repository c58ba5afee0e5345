# One image for the web server, the worker and the preparation; they differ by their command (compose.yaml shows all three).
FROM python:3.11-slim-bookworm AS build
ENV PIP_NO_CACHE_DIR=1 UV_NO_CACHE=1
ARG EXTRAS=""
COPY . /source
RUN pip install --quiet uv==0.13.8
RUN sh /source/docker/install.sh /source /opt/ragd

FROM python:3.11-slim-bookworm
RUN useradd --system --uid 10001 --home-dir /opt/ragd --shell /usr/sbin/nologin ragd
COPY --from=build /opt/ragd /opt/ragd
RUN chown -R ragd:ragd /opt/ragd/var
USER ragd
WORKDIR /opt/ragd/app
ENV PATH=/opt/ragd/venv/bin:$PATH PYTHONUNBUFFERED=1 RAGD_VAR=/opt/ragd/var RAGD_HOST=0.0.0.0 PORT=8000
EXPOSE 8000
HEALTHCHECK --interval=15s --timeout=10s --start-period=60s --retries=4 CMD ["python", "-m", "ragd_site.health"]
CMD ["gunicorn", "-c", "python:ragd_site.web", "ragd_site.wsgi"]
