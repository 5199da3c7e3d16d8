"""Builds the package `delayline` from the folders of the tree: one name in somebody's site-packages, and no other.

`pyproject.toml` has everything that can be stated there. Here is what cannot: in the tree the folders are imported by
their own names (`state`, `pipeline`, ...), installed they are `delayline.state`, `delayline.pipeline` and so on, and
the imports between them say so. `import delayline` gives what `pipeline/client/public.py` names, `delayline.schema`
what `pipeline/client/schemadoor.py` does, and `delayline.testing` what `pipeline/testing/public.py` does.
"""

import ast
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

NAME = "delayline"
FOLDERS = ("state", "schemas", "pipeline", "jobs", "conf")
DATA = ("conf", "conf.grafana", "conf.prometheus")
"""Folders of files that are no code."""
DOORS = {
    "__init__": Path("pipeline/client/public.py"),
    "schema": Path("pipeline/client/schemadoor.py"),
    "testing": Path("pipeline/testing/public.py"),
}
"""Modules of the package that are no folder of the tree, and what they give."""
EVERYTHING = ("delayline.pipeline.client", "everything")
"""The module from which the first door takes its names."""


def installed(source: str) -> str:
    """A module as it is installed: the folders of the tree are below `delayline`.

    Raises:
        ValueError: it imports a folder in a way that cannot be said in one statement with the longer name.
    """
    lines = source.splitlines(keepends=True)
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.ImportFrom(module=str(module), level=0) if module.partition(".")[0] in FOLDERS:
                line = lines[node.lineno - 1]
                lines[node.lineno - 1] = line.replace(f"from {module} ", f"from {NAME}.{module} ", 1)
            case ast.Import(names=names) if {each.name.partition(".")[0] for each in names} & set(FOLDERS):
                if len(names) > 1 or "." in names[0].name:
                    message = f"line {node.lineno}: import one folder of the tree by itself, or from it"
                    raise ValueError(message)
                line = lines[node.lineno - 1]
                lines[node.lineno - 1] = line.replace("import ", f"from {NAME} import ", 1)
    return "".join(lines)


def exported(door: Path) -> str:
    """A statement of the names that a door gives: a strict type checker takes over no others."""
    statements = ast.parse(door.read_text(encoding="utf-8")).body
    (names,) = (
        each.value for each in statements if isinstance(each, ast.Assign) and ast.unparse(each.targets[0]) == "__all__"
    )
    return f"\n__all__ = {ast.unparse(names)}\n"


class Build(build_py):
    """Copies the modules with the names that they have once they are installed."""

    def build_module(self, module: str | list[str] | tuple[str, ...], module_file: str, package: str) -> object:
        """Copy one module, then rewrite its imports."""
        built = super().build_module(module, module_file, package)
        target = Path(self.get_module_outfile(self.build_lib, package.split("."), str(module)))
        text = installed(Path(module_file).read_text(encoding="utf-8"))
        if (package, module) == EVERYTHING:
            text += exported(DOORS["__init__"])
        target.write_text(text, encoding="utf-8")
        return built

    def run(self) -> None:
        """Build all modules, and the public doors."""
        super().run()
        if not self.editable_mode:
            for module, door in DOORS.items():
                text = installed(door.read_text(encoding="utf-8"))
                Path(self.build_lib, NAME, f"{module}.py").write_text(text, encoding="utf-8")
            # What it says of types counts for those who use it (PEP 561).
            Path(self.build_lib, NAME, "py.typed").touch()


packages = [*find_packages(include=[pattern for name in FOLDERS for pattern in (name, f"{name}.*")]), *DATA]
setup(
    packages=[f"{NAME}.{each}" for each in packages],
    package_dir={f"{NAME}.{each}": each.replace(".", "/") for each in packages},
    package_data={
        **{f"{NAME}.{each}": ["*"] for each in DATA},
        f"{NAME}.jobs.web": ["templates/*", "static/*"],
    },
    # Not `project.scripts`: the script that an installer makes of that loads other modules first.
    scripts=["jobs/delayline"],
    cmdclass={"build_py": Build},
)
