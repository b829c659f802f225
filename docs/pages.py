"""What MkDocs does besides turning docs/ into pages: files of the repository that pages link to become pages as well.

So a link works alike on a code host, in an editor and on the site, which needs no address of a repository. It checks
nothing: `check_links` and MkDocs' own strictness do. mkdocs.yml names it as a hook.
"""

import os
import re
import shutil
from pathlib import Path, PurePosixPath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from docs import check_links

ROOT = check_links.ROOT
DOCS = ROOT / "docs"
# The folder of the site that has the files from outside docs/, under their own paths.
SOURCE = PurePosixPath("source")
LANGUAGES = {".py": "python", ".toml": "toml", ".yaml": "yaml", ".yml": "yaml", ".sh": "sh"}

CODE_OR_LINK = re.compile(check_links.CODE.pattern + r"|(?<=\]\()[^)\s]+(?=[)\s])", check_links.CODE.flags)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for every file outside docs/ that a page, or another file that becomes one, links to."""
    waiting = [DOCS / file.src_uri for file in files.documentation_pages()]
    while waiting:
        document = waiting.pop()
        for target in check_links.links(document):
            path = aim(document, target)
            if is_ours(path) or files.get_file_from_path(place(path)):
                continue
            files.append(File.generated(config, place(path), content=shown(path)))
            waiting.extend([path] if path.suffix == ".md" else [])
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead every link that leaves docs/, or is written outside of it, to where its target is on the site."""
    origin, here = origin_of(page.file.src_uri), PurePosixPath(page.file.src_uri).parent

    def moved(found: re.Match[str]) -> str:
        target = found[0]
        if target.startswith(("`", "~", "#")) or check_links.ELSEWHERE.match(target):
            return target
        path = aim(origin, target)
        if is_ours(path) and is_ours(origin):
            return target
        return os.path.relpath(place(path), here) + target.removeprefix(target.partition("#")[0])

    return CODE_OR_LINK.sub(moved, markdown)


def on_post_build(config: MkDocsConfig) -> None:
    """Put the Markdown beside the pages that were made of it, where `llms.txt` says it is."""
    for page in DOCS.rglob("*.md"):
        shutil.copy(page, Path(config.site_dir) / page.relative_to(DOCS))


def aim(document: Path, target: str) -> Path:
    """The file that a link in a document leads to."""
    name = target.partition("#")[0]
    return (document.parent / name).resolve() if name else document


def is_ours(path: Path) -> bool:
    """Whether MkDocs finds a file by itself."""
    return path.is_relative_to(DOCS)


def place(path: Path) -> str:
    """Where a file of the repository is on the site: its own Markdown, or a page that shows it."""
    if is_ours(path):
        return path.relative_to(DOCS).as_posix()
    there = SOURCE / path.relative_to(ROOT).as_posix()
    return str(there if path.suffix == ".md" else there.with_name(f"{there.name}.md"))


def origin_of(uri: str) -> Path:
    """The file of the repository that a page of the site was made of."""
    outside = PurePosixPath(uri).is_relative_to(SOURCE)
    return ROOT / PurePosixPath(uri).relative_to(SOURCE) if outside else DOCS / uri


def shown(path: Path) -> str:
    """A file as a page; of a folder, the names of what is in it."""
    name = path.relative_to(ROOT).as_posix()
    if path.is_dir():
        return f"# `{name}/`\n\n" + "".join(f"- `{inside.name}`\n" for inside in sorted(path.iterdir()))
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return text
    language = LANGUAGES.get(path.suffix, "text")
    return f"---\nsearch:\n  exclude: true\n---\n# `{name}`\n\n`````{language}\n{text}\n`````\n"
