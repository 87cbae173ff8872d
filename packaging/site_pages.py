#!/usr/bin/env python3
"""Writes the pages of the reference: the C header, the package for Python, the module for Go, and a front page.

    site_pages.py OUT [--go FILE] [--rust PAGE]

FILE holds what `go doc -all` prints; PAGE is the first page of what cargo doc wrote, relative to OUT. What is not
given is said to be missing on the front page. packaging/make_site.sh calls all of them. Python's standard library
is enough, no module of Gannet is imported, and the pages load nothing: they open offline, also from a disk.
"""

import argparse
import ast
import html
import itertools
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[1]
HEADER = ROOT / "capi/include/ann.h"
PYTHON = ROOT / "bindings/python/src/gannet"

STYLE = """
:root { color-scheme: light dark; --line: #8884; --shade: #8881; --link: #0b5cad; }
@media (prefers-color-scheme: dark) { :root { --link: #7ab8f5; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 62rem; padding: 0 1rem 4rem; font: 16px/1.5 system-ui, sans-serif;
       overflow-wrap: anywhere; }
a { color: var(--link); text-decoration: none; } a:hover { text-decoration: underline; }
nav.top { padding: .8rem 0; border-bottom: 1px solid var(--line); display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; }
h1 { line-height: 1.2; } h2 { margin-top: 2.5rem; border-bottom: 1px solid var(--line); }
h3 { margin: 2rem 0 .3rem; font-size: 1rem; }
pre, code { font: .85rem/1.45 ui-monospace, monospace; }
pre { overflow-x: auto; padding: .7rem .9rem; background: var(--shade); border-radius: .4rem; white-space: pre;
      overflow-wrap: normal; }
pre { tab-size: 4; } p { margin: .6rem 0; }
ul.names { columns: 16rem; padding-left: 1.2rem; }
dl dt { font-weight: 600; margin-top: .6rem; } dd { margin: 0 0 0 1rem; }
dd ul.names { margin: 0; }
"""
PAGES = [("index.html", "Gannet"), ("c.html", "C"), ("python.html", "Python"), ("go.html", "Go")]


def escape(text):
    return html.escape(text, quote=False)


def page(title, body, rust=None):
    links = [f'<a href="{name}">{text}</a>' for name, text in PAGES]
    if rust:
        links.append(f'<a href="{html.escape(rust)}">Rust</a>')
    return ('<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"<title>{escape(title)}</title>\n<style>{STYLE}</style></head><body>\n"
            f'<nav class="top">{"".join(links)}</nav>\n{body}\n</body></html>\n')


# --- Prose ----------------------------------------------------------------------------------------

TERM = re.compile(r"( *)(\S.{0,40}?) {2,}(\S.*)")


def indent_of(line):
    return len(line) - len(line.lstrip())


def prose(text, link=escape):
    """A comment or docstring as paragraphs that fit any width: lists of terms as such, what is indented as it is."""
    return "\n".join(part for paragraph in re.split(r"\n\s*\n", text.strip("\n"))
                     for part in pieces_of(paragraph.split("\n"), link))


def pieces_of(lines, link):
    said = lambda text: re.sub(r"`([^`]+)`", r"<code>\1</code>", link(text))  # noqa: E731
    while lines:
        count = 1
        term = TERM.fullmatch(lines[0])
        if lines[0].lstrip().startswith(">>>"):
            count = len(lines)
            yield f"<pre>{link(chr(10).join(lines))}</pre>"
        elif term:
            column, entries = term.start(3), [[term[2], term[3]]]
            for line in lines[1:]:
                another = TERM.fullmatch(line)
                if indent_of(line) > len(term[1]):
                    entries[-1][1] += "\n" + line.strip()
                elif indent_of(line) == len(term[1]) and (another or line[column - 1:column] == " "):
                    entries.append([another[2], another[3]] if another else [line[:column].strip(), line[column:]])
                else:
                    break
                count += 1
            items = [f"<dt>{said(name)}</dt>\n<dd>{said(rest)}</dd>" for name, rest in entries]
            yield "<dl>" + "\n".join(items) + "</dl>"
        elif indent_of(lines[0]) >= 4:
            while count < len(lines) and indent_of(lines[count]) >= 4:
                count += 1
            yield f"<pre>{link(chr(10).join(lines[:count]))}</pre>"
        elif lines[0].startswith("# "):
            yield f"<h3>{said(lines[0][2:])}</h3>"
        else:
            while count < len(lines) and not TERM.fullmatch(lines[count]) and indent_of(lines[count]) < 4:
                count += 1
            yield f"<p>{said(chr(10).join(lines[:count]))}</p>"
        lines = lines[count:]


# --- C --------------------------------------------------------------------------------------------

def names_declared(code):
    """Functions, types, enumerators and macros that a piece of the header declares."""
    code = re.sub(r"/\*.*?\*/", " ", code, flags=re.S)
    found = re.findall(r"^ANN_API [^;(]*?\b(ann_\w+)\(", code, re.M)
    found += re.findall(r"^typedef [^;{]*\b(ann_\w+);", code, re.M)
    found += re.findall(r"^\} (ann_\w+);", code, re.M)
    found += re.findall(r"^#define (ANN_\w+)", code, re.M)
    for body in re.findall(r"\benum\s*\{(.*?)\}", code, re.S):
        found += re.findall(r"\b(ANN_\w+)\s*=", body)
    return list(dict.fromkeys(name for name in found if name not in ("ANN_API", "ANN_NULL")))


def header_parts(text):
    """[(title of a section, its text)]; the first is the essay at the top."""
    bar = r"/\* -{20,}\n"
    pieces = re.split(bar, text)
    parts = [("The library", pieces[0])]
    for piece in pieces[1:]:
        title, rest = piece.split("\n", 1)
        parts.append((re.sub(r"^ \* ", "", title).strip(), rest))
    return parts


def comment_text(comment):
    """A comment without its stars."""
    lines = comment.strip().removeprefix("/*").removesuffix("*/").split("\n")
    return "\n".join(re.sub(r"^ \* ?", "", line).rstrip() for line in lines).strip("\n").removeprefix(" ")


def blocks_of(rest):
    """The pieces of a section between empty lines outside of comments and braces."""
    blocks, block, depth, comment = [], [], 0, False
    for line in rest.split("\n"):
        if not line.strip() and depth == 0 and not comment:
            blocks.append("\n".join(block))
            block = []
            continue
        block.append(line)
        bare = re.sub(r"/\*.*?\*/", "", line)
        if comment and "*/" in bare:
            comment, bare = False, bare.split("*/", 1)[1]
        if not comment and "/*" in bare:
            comment, bare = True, bare.split("/*", 1)[0]
        if not comment and not bare.startswith(("extern", "#")):
            depth += bare.count("{") - bare.count("}")
    blocks.append("\n".join(block))
    return [b for b in blocks if b.strip()]


def c_page(text, rust):
    everything = set(names_declared(text))
    word = re.compile(r"\b(?:ann|ANN)_\w+\b")

    def linked(code):
        return word.sub(lambda m: f'<a href="#{m.group(0)}">{m.group(0)}</a>' if m.group(0) in everything
                        else m.group(0), escape(code))

    body, contents, marked = [], [], set()
    for title, rest in header_parts(text):
        if title == "The library":
            essay = comment_text(re.match(r"/\*.*?\*/", rest, re.S).group(0))
            body.append(f"<h1>ann.h</h1>\n{prose(essay, linked)}")
            continue
        anchor = "section-" + title.split(" ")[0]
        body.append(f'<h2 id="{anchor}">{escape(title)}</h2>')
        rest = rest.removesuffix("\n")
        opening = re.match(r"( \*.*?)? ?\* -{20,} \*/\n|.*?-{20,} \*/\n", rest, re.S)
        if opening:
            introduction = re.sub(r" ?\*? -{20,} \*/\n$", "", opening.group(0))
            introduction = comment_text(introduction).strip()
            if introduction:
                body.append(prose(introduction, linked))
            rest = rest[opening.end():]
        names_here = []
        for block in blocks_of(rest):
            if re.match(r"#if defined\(__cplusplus\)|#endif", block):
                continue
            names = [name for name in names_declared(block) if name not in marked]
            marked.update(names)
            names_here += [n for n in names if n.startswith("ann_")]
            anchors = "".join(f'<span id="{name}"></span>' for name in names)
            first = re.match(r"/\*.*?\*/\n?", block, re.S)
            said, code = ("", block) if not first else (comment_text(first.group(0)), block[first.end():])
            if names and names[0].startswith("ann_"):
                body.append(f"<h3>{escape(names[0])}</h3>")
            body.append(anchors)
            if code.strip():
                body.append(f"<pre>{linked(code.rstrip())}</pre>")
            if said:
                body.append(prose(said, linked))
        items = "".join(f'<li><a href="#{n}">{n}</a></li>' for n in names_here)
        contents.append(f'<dt><a href="#{anchor}">{escape(title)}</a></dt><dd><ul class="names">{items}</ul></dd>')
    body.insert(1, f"<h2>Contents</h2><dl>{''.join(contents)}</dl>")
    return page("ann.h", "\n".join(body), rust)


# --- Python ---------------------------------------------------------------------------------------

def signature(function):
    name = ("async " if isinstance(function, ast.AsyncFunctionDef) else "") + function.name
    returns = f" -> {ast.unparse(function.returns)}" if function.returns else ""
    arguments = ast.unparse(function.args)
    one_line = f"{name}({arguments}){returns}"
    if len(one_line) <= 90:
        return one_line
    parts = re.split(r", (?![^\[(]*[\])])", arguments)
    return f"{name}(\n    " + ",\n    ".join(parts) + f"){returns}"


def documented(node):
    text = ast.get_docstring(node)
    return prose(text) if text else ""


def class_entry(module, node):
    bases = ", ".join(ast.unparse(base) for base in node.bases)
    head = f"class {node.name}" + (f"({bases})" if bases else "")
    out = [f'<h3 id="{module}.{node.name}">{escape(node.name)}</h3><pre>{escape(head)}</pre>{documented(node)}']
    fields = []
    for member in node.body:
        if isinstance(member, ast.AnnAssign) and not ast.unparse(member.target).startswith("_"):
            fields.append(f"{ast.unparse(member.target)}: {ast.unparse(member.annotation)}")
        elif isinstance(member, ast.Expr) and isinstance(member.value, ast.Constant) and fields \
                and isinstance(member.value.value, str):
            fields[-1] += "    # " + " ".join(member.value.value.split())
    if fields:
        out.append(f"<pre>{escape(chr(10).join(fields))}</pre>")
    for member in node.body:
        if isinstance(member, (ast.FunctionDef, ast.AsyncFunctionDef)) and (
                not member.name.startswith("_") or member.name.startswith("__") and ast.get_docstring(member)):
            anchor = f"{module}.{node.name}.{member.name}"
            decorators = "".join(f"@{ast.unparse(d)}\n" for d in member.decorator_list)
            out.append(f'<h3 id="{anchor}">{escape(node.name)}.{escape(member.name)}</h3>'
                       f"<pre>{escape(decorators + signature(member))}</pre>{documented(member)}")
    return "\n".join(out)


def public_names(package):
    """What `from gannet import *` gives, in the order of __all__."""
    for node in package.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return ast.literal_eval(node.value)
    raise ValueError("gannet/__init__.py has no __all__")


ADAPTERS = ("sklearn", "langchain", "llamaindex", "faiss")


def python_page(folder, rust):
    package = ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))
    wanted = public_names(package)
    found = {}
    for path in sorted(folder.glob("*.py")):
        if path.stem in ("__init__", *ADAPTERS):
            continue
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.name in wanted:
                found[node.name] = node
    missing = [name for name in wanted if name not in found]
    if missing:
        raise ValueError(f"no definition found of {', '.join(missing)}")

    def entry(module, node):
        if isinstance(node, ast.ClassDef):
            return class_entry(module, node)
        return (f'<h3 id="{module}.{node.name}">{escape(node.name)}</h3><pre>{escape(signature(node))}</pre>'
                f"{documented(node)}")

    groups = [("Functions", [n for n in wanted if isinstance(found[n], ast.FunctionDef)]),
              ("Classes", [n for n in wanted if isinstance(found[n], ast.ClassDef)])]
    body, contents = [f"<h1>gannet for Python</h1>{documented(package)}"], []
    for title, names in groups:
        body.append(f"<h2>{title}</h2>")
        body += [entry("gannet", found[name]) for name in names]
        items = "".join(f'<li><a href="#gannet.{n}">{n}</a></li>' for n in names)
        contents.append(f'<dt>{title}</dt><dd><ul class="names">{items}</ul></dd>')
    for name in ADAPTERS:
        tree = ast.parse((folder / f"{name}.py").read_text(encoding="utf-8"))
        body.append(f'<h2 id="gannet.{name}">gannet.{name}</h2>{documented(tree)}')
        nodes = [n for n in tree.body if isinstance(n, (ast.ClassDef, ast.FunctionDef)) and n.name[0] != "_"]
        body += [entry(f"gannet.{name}", node) for node in nodes]
        items = "".join(f'<li><a href="#gannet.{name}.{n.name}">{n.name}</a></li>' for n in nodes)
        contents.append(f'<dt><a href="#gannet.{name}">gannet.{name}</a></dt><dd><ul class="names">{items}</ul></dd>')
    body.insert(1, f"<h2>Contents</h2><dl>{''.join(contents)}</dl>")
    return page("gannet for Python", "\n".join(body), rust)


# --- Go -------------------------------------------------------------------------------------------

def go_page(text, rust):
    """What `go doc -all` prints, with an anchor at each declaration."""
    if text is None:
        return page("gannet for Go", "<h1>gannet for Go</h1><p>Go was not there when these pages were made.</p>", rust)
    overview, *rest = re.split(r"^(?:CONSTANTS|VARIABLES|FUNCTIONS|TYPES)$", text.rstrip(), flags=re.M)
    titles = re.findall(r"^(?:CONSTANTS|VARIABLES|FUNCTIONS|TYPES)$", text, re.M)
    import_line, overview = overview.split("\n", 1)
    names, body = [], []
    for title, part in zip(titles, rest):
        body.append(f'<h2 id="{title.lower()}">{title.capitalize()}</h2>')
        # Descriptions are indented by four spaces, fields by tabs.
        for described, lines in itertools.groupby(part.split("\n"), lambda line: line.startswith("    ")
                                                  if line.strip() else None):
            lines = list(lines)
            if described is None:
                continue
            if described:
                body.append(prose("\n".join(line[4:] for line in lines)))
                continue
            for line in lines:
                declared = re.match(r"(?:func (?:\(\w+ \*?(?P<of>\w+)(?:\[\w+\])?\) )?|type )(?P<name>\w+)", line)
                if declared:
                    name = ".".join(found for found in (declared["of"], declared["name"]) if found)
                    names.append(name)
                    body.append(f'<h3 id="{name}">{name}</h3>')
            body.append(f"<pre>{escape(chr(10).join(lines))}</pre>")
    items = "".join(f'<li><a href="#{name}">{name}</a></li>' for name in names)
    body = [f"<h1>gannet for Go</h1><pre>{escape(import_line)}</pre>{prose(overview)}",
            f'<h2>Contents</h2><ul class="names">{items}</ul>', *body]
    return page("gannet for Go", "\n".join(body), rust)


# --- All of them ----------------------------------------------------------------------------------

def front_page(version, go, rust):
    def line(name, address, text, there=True):
        if not there:
            return f"<dt>{name}</dt><dd>not made: its tools were not there</dd>"
        return f'<dt><a href="{html.escape(address)}">{name}</a></dt><dd>{text}</dd>'
    body = (f"<h1>Gannet {version}</h1><p>Finds, among many stored vectors, the few that lie nearest to a query: "
            "one shared object behind one C header, and packages over it. The header is the manual; the others say "
            "what they add.</p><dl>"
            + line("C", "c.html", "<code>ann.h</code>: every function, struct and constant, with the rules for all")
            + line("Python", "python.html", "<code>gannet</code>: arrays of NumPy, CuPy, Torch and others")
            + line("Go", "go.html", "<code>github.com/gannet-ann/gannet/bindings/go</code>", go)
            + line("Rust", rust or "", "<code>gannet</code>, the safe crate, and <code>gannet_sys</code> under it",
                   bool(rust)) + "</dl>")
    return page(f"Gannet {version}", body, rust)


def version_of(text):
    return ".".join(re.search(rf"ANN_VERSION_{part} (\d+)", text).group(1) for part in ("MAJOR", "MINOR", "PATCH"))


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1].strip())
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--go", type=pathlib.Path)
    parser.add_argument("--rust")
    given = parser.parse_args()
    header = HEADER.read_text(encoding="utf-8")
    go = given.go.read_text(encoding="utf-8") if given.go else None
    given.out.mkdir(parents=True, exist_ok=True)
    for name, text in (("index.html", front_page(version_of(header), go is not None, given.rust)),
                       ("c.html", c_page(header, given.rust)),
                       ("python.html", python_page(PYTHON, given.rust)),
                       ("go.html", go_page(go, given.rust))):
        (given.out / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
