#!/usr/bin/env bash
# The reference that packaging/make_site.sh makes: all of the header and of the names of the package for Python is in
# it, every link leads somewhere, and the pages of our own load nothing from elsewhere.
#
#   site_test.sh [BUILD]      BUILD is not used: the site is made from the sources
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"$root/packaging/make_site.sh" "$scratch/site" > "$scratch/log" || { cat "$scratch/log"; exit 1; }
python3 -B - "$root" "$scratch/site" <<'PYTHON'
import html.parser
import pathlib
import re
import sys

root, site = map(pathlib.Path, sys.argv[1:])


class Page(html.parser.HTMLParser):
    """The text of a page, its anchors, and what it links to or loads."""

    def __init__(self, path):
        super().__init__()
        self.text, self.anchors, self.links, self.loaded = "", set(), set(), set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        if "id" in found:
            if found["id"] in self.anchors:
                problems.append(f"the anchor {found['id']} is there twice")
            self.anchors.add(found["id"])
        if tag == "a":
            self.links.add(found["href"])
        self.loaded |= {found[key] for key in ("src", "data", "srcset") if key in found}
        if tag in ("link", "script"):
            self.loaded.add(tag)

    def handle_data(self, data):
        self.text += data


problems = []
pages = {path.name: Page(path) for path in site.glob("*.html")}
for name, page in pages.items():
    if page.loaded:
        problems.append(f"{name} loads {sorted(page.loaded)}")
    for link in page.links:
        path, _, anchor = link.partition("#")
        if not (site / (path or name)).is_file():
            problems.append(f"{name} links to {link}, which is not there")
        elif anchor and anchor not in pages[path or name].anchors:
            problems.append(f"{name} links to {link}, an anchor that is not there")


def words(text):
    return re.sub(r"[\s*/]+", " ", text.replace("`", ""))


# The lines of the header that say nothing to a reader.
guards = re.compile(r"#(if|ifndef|endif|include)\b|#define (GANNET_ANN_H|ANN_API)\b|extern \"C\"|-*$")
shown = words(pages["c.html"].text)
header = (root / "capi/include/ann.h").read_text(encoding="utf-8")
for line in header.split("\n"):
    if not guards.match(words(line).strip()) and words(line).strip() not in shown:
        problems.append(f"c.html does not show: {line.strip()}")
declared = re.findall(r"^ANN_API [^;(]*?\b(ann_\w+)\(", header, re.M)
problems += [f"c.html has no anchor {name}" for name in declared if name not in pages["c.html"].anchors]

source = (root / "bindings/python/src/gannet/__init__.py").read_text(encoding="utf-8")
names = re.findall(r'"(\w+)"', source[source.index("__all__"):])
problems += [f"python.html has no anchor gannet.{name}" for name in names
             if f"gannet.{name}" not in pages["python.html"].anchors]
if "index.Search(" in pages["go.html"].text and "Index.Search" not in pages["go.html"].anchors:
    problems.append("go.html has no anchor Index.Search")

if problems or len(declared) < 30 or len(names) < 30:
    sys.exit("\n".join(problems) or "the header or the package were not read")
print(f"site: {len(pages)} pages, {sum(len(p.anchors) for p in pages.values())} names, every link leads somewhere")
PYTHON
