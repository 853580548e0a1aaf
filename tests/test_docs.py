"""The documentation site is built without a warning, lists all there is, and is readable on a telephone and without a network."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import sinkjax
from sinkjax.checkpoints.family import families
from sinkjax.cli.verbs import VERBS
from sinkjax.model.normalisers import NAMED
from sinkjax.model.site import Site
from sinkjax.probes.statistics import BUILT_IN
from sinkjax.study.registry import declared

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
WIDTHS = (400, 1300)  # pixels
OPENED = (
    "index",
    "getting-started",
    "dictionary",
    "reference/sites",
    "generated/api",
    "generated/studies",
    "generated/quickstart",
    "generated/two_models",
    "generated/gallery",
    "results/findings",
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built from a copy of the sources: docs/generated of the checkout stays as it is."""
    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(DOCS, folder / "docs", ignore=shutil.ignore_patterns("_build", "generated"))
    shutil.copytree(ROOT / "colab", folder / "colab")
    command = [sys.executable, "-m", "sphinx", "--fail-on-warning", "--keep-going", "--quiet", "-b", "html"]
    done = subprocess.run([*command, folder / "docs", folder / "html"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder / "html"


def words(file: Path) -> str:
    return file.read_text(encoding="utf-8")


@pytest.mark.page
def test_every_name_site_statistic_study_and_command_has_its_place(site: Path):
    studies, commands = (words(site / "generated" / f"{page}.html") for page in ("studies", "commands"))
    api = "".join(map(words, sorted((site / "generated").glob("api-*.html"))))
    for name in sinkjax.__all__:
        assert f'id="sinkjax.{name}"' in api or f'id="module-{sinkjax._SUBMODULES.get(name)}"' in api, name
    assert [name for name in declared() if f">{name}<" not in studies] == []
    assert [name for name in VERBS if f">sinkjax {name}<" not in commands] == []
    sites, statistics = (words(site / "reference" / f"{page}.html") for page in ("sites", "statistics"))
    assert [name.name for name in Site if f">{name.name}<" not in sites] == []
    assert [name for name in (*BUILT_IN, "nll") if f">{name}<" not in statistics] == []


@pytest.mark.page
def test_the_first_tables_of_the_findings_fit_beside_the_sidebars(site: Path, browser):
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": 1300, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    )
    browser.get((site / "results" / "findings.html").as_uri())
    script = (
        "return [...document.querySelectorAll('article table')].map(table => table.offsetWidth - table.parentElement.offsetWidth)"
    )
    assert max(browser.execute_script(script)[:3]) <= 0


@pytest.mark.page
def test_nothing_is_asked_of_another_host_and_no_page_is_wider_than_its_window(site: Path, browser):
    for page in OPENED:
        for width in WIDTHS:
            metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
            browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
            browser.get((site / f"{page}.html").as_uri())
            assert browser.execute_script("return document.documentElement.scrollWidth") <= width, (page, width)
            asked = browser.execute_script("return performance.getEntriesByType('resource').map(entry => entry.name)")
            assert [address for address in asked if not address.startswith("file:")] == [], page


@pytest.mark.page
def test_a_search_finds_the_page_of_a_name(site: Path, browser):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import WebDriverWait

    browser.get(f"{(site / 'search.html').as_uri()}?q=mask_key")
    WebDriverWait(browser, 60).until(lambda driver: driver.find_elements(By.CSS_SELECTOR, "#search-results li a"))
    found = [link.get_attribute("href") for link in browser.find_elements(By.CSS_SELECTOR, "#search-results li a")]
    assert any("generated/api-named-edits.html" in address for address in found)


def first_cells(page: str) -> set[str]:
    """The names in backticks in the first column of a page's tables."""
    rows = re.findall(r"^\| ([^|]*) \|", words(DOCS / page), re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row)}


def test_the_table_of_normalisers_has_all_of_them_and_no_other():
    assert first_cells("reference/architectures.md") - {"sinkjax.model.normalisers.NAMED", *families()} == {*NAMED}


def test_the_dictionary_translates_into_sites_that_there_are():
    rows = re.findall(r"^\| [^|]* \| ([^|]*) \|", words(DOCS / "dictionary.md"), re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`([A-Z_]+)`", row)}
    assert named <= {site.name for site in Site}
    assert named >= {site.name for site in Site} - {"POSITION", "ROUTER"}  # no hook of TransformerLens is like these


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: str(page.relative_to(DOCS)))
def test_every_row_of_a_table_has_the_cells_of_its_head(page: Path):
    """A bar in a cell, as in `<|bos|>`, ends the cell unless it is escaped."""
    outside_code = re.sub(r"^ *```.*?^ *```", "", words(page), flags=re.DOTALL | re.MULTILINE)
    for rows in re.findall(r"(?:^\|.*\n)+", outside_code, re.MULTILINE):
        assert len({len(re.findall(r"(?<!\\)\|", row)) for row in rows.splitlines()}) == 1, rows


def test_the_readme_is_short_and_links_to_what_is_there():
    readme, studies = words(ROOT / "README.md"), words(DOCS / "results" / "studies.md")
    assert len(readme.splitlines()) <= 100
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", readme) + re.findall(r'src="([^"]+)"', readme)
    assert links
    assert [link for link in links if not link.startswith("https://") and not (ROOT / link).exists()] == []
    assert [name for name in declared() if "/" in name and name.split("/")[1] not in studies] == []


def test_the_readme_has_a_row_for_each_paper_with_a_command_and_a_notebook_that_there_are():
    rows = [row.split(" | ") for row in words(ROOT / "README.md").splitlines() if row.startswith("|")][2:]
    assert [re.sub(r"\W*(.*?) 2.*", r"\1", row[0]) for row in rows] == ["Kiya et al.", "Gu et al.", "Ran-Milo", "Li et al."]
    for _, _, command, number, notebook in rows:
        (study,) = re.findall(r"`sinkjax run ([\w/-]+)(?: --model [\w-]+)?`", command)
        assert study in declared()
        assert re.search(r"\d", number)
        assert re.search(r"\(colab/\w+\.ipynb\)", notebook)
    assert "softmax" in rows[2][3]
    assert "ReLU" in rows[2][3]
