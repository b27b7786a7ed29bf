"""Hooks of MkDocs: pages outside of docs/, and links to files that are not pages.

The Markdown files link to each other, and to sources, by paths in the repository, so that they also work in its web view.
"""
import pathlib
import posixpath
import re

from mkdocs.structure.files import File

ROOT = pathlib.Path(__file__).resolve().parents[3]
# File of the repository -> page of the site.
PAGES = {
    "README.md": "overview.md",
    "CONTRIBUTING.md": "contributing.md",
    "charts/oarlock/README.md": "chart.md",
    "examples/own-task/README.md": "own-task.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security-policy.md",
}
LINK = re.compile(r"(\]\()([^)\s]+)(\))")


def on_files(files, config):
    for source, page in PAGES.items():
        if (ROOT / source).exists():
            files.append(File.generated(config, page, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown, page, config, files):
    source = next((source for source, uri in PAGES.items() if uri == page.file.src_uri), f"docs/{page.file.src_uri}")

    def rewrite(match):
        target, _, anchor = match[2].partition("#")
        if not target or re.match(r"\w+:", target):
            return match[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        uri = PAGES.get(path, path.removeprefix("docs/") if path.startswith("docs/") else None)
        is_page = uri is not None and files.get_file_from_path(uri) is not None
        if not is_page:
            if not (ROOT / path).exists():
                return match[0]  # MkDocs reports it
            return f"{match[1]}{config['extra']['repository']}/{path}{match[3]}"
        link = posixpath.relpath(uri, posixpath.dirname(page.file.src_uri) or ".")
        return f"{match[1]}{link}{'#' + anchor if anchor else ''}{match[3]}"

    fences = re.split(r"(^```.*?^```$)", markdown, flags=re.M | re.S)
    return "".join(part if part.startswith("```") else LINK.sub(rewrite, part) for part in fences)
