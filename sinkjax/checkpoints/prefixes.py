"""Tensor names of files that were saved from inside a wrapper, or without the head: one rule for all families."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from sinkjax.config_files.checks import refuse

# What torch puts around a module, anywhere in a name: torch.compile, FSDP, activation checkpointing.
WRAPPERS = ("_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module.")
# What stands in front of a whole model: DistributedDataParallel, peft, the text part of a larger model, a base model.
LEADING = ("module.", "base_model.model.", "language_model.", "text_model.", "model.")


def canonical(
    names: Iterable[str], wanted: Collection[str], prefix: str, aliases: Mapping[str, str], where: str
) -> dict[str, str]:
    """Map a file's tensor names to the wanted ones; a name that fits none is unchanged.

    prefix: the base model's name in `wanted` ("model."), which files without the head lack. aliases: further names -> wanted
    ones. where: the file, for messages. Errors: two names of the file that mean the same tensor.
    """
    meaning: dict[str, str] = {}
    given: dict[str, str] = {}
    for name in names:
        meant = (aliases.get(form, form) for form in _forms(name, prefix))
        meaning[name] = next((form for form in meant if form in wanted), name)
        other = given.setdefault(meaning[name], name)
        refuse(other != name, f"{where} has the tensor {meaning[name]!r} twice, as {other!r} and as {name!r}")
    return meaning


def _forms(name: str, prefix: str) -> Iterator[str]:
    """Yield a name with fewer and fewer prefixes, each also below the base model's."""
    for wrapper in WRAPPERS:
        name = name.replace(wrapper, "")
    while True:
        yield from (name, prefix + name)
        leading = next((each for each in LEADING if name.startswith(each)), None)
        if leading is None:
            return
        name = name.removeprefix(leading)
