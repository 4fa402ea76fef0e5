"""Answers Hugging Face requests of recipes from configurations at hand; no network, no weights.

Upstream's own bridges then convert the configuration to the real model provider, which is snapshot before the recipe writes
to it. A model without a configuration at hand makes the recipe fail with that reason.
"""

from __future__ import annotations

import importlib
import importlib.util
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from autorecipe.catalog.evaluator.tracking import track

SnapshotBase = Callable[[str, Any], str]


@dataclass
class HubLog:
    """What one recipe asked of the hub.

    Attributes:
        model_ids: ids in the order of the requests, once each.
        revisions: requested revision by id.
        remote_code: ids requested with `trust_remote_code`.
        tokenizer_ids: tokenizers whose size was read.
        model: id of the model that was converted last, with `#` and the part where it was a part; empty for none.
        base: id of the snapshot that the configuration's model started from, or None.
    """

    model_ids: list[str] = field(default_factory=list)
    revisions: dict[str, str] = field(default_factory=dict)
    remote_code: list[str] = field(default_factory=list)
    tokenizer_ids: list[str] = field(default_factory=list)
    model: str = ""
    base: str | None = None

    def add(self, model_id: str) -> None:
        """Note a requested id."""
        if model_id not in self.model_ids:
            self.model_ids.append(model_id)


class Hub:
    """Serves configurations by id and installs itself in place of network access."""

    def __init__(
        self, configs: Mapping[str, Mapping[str, Any]], tokenizer_lengths: Mapping[str, int], snapshot: SnapshotBase
    ) -> None:
        self.configs = configs
        self.tokenizer_lengths = tokenizer_lengths
        self.snapshot = snapshot
        self.log = HubLog()

    def start_recipe(self) -> None:
        """Forget the requests of the recipe before."""
        self.log = HubLog()

    def load_config(self, path: Any, *args: Any, **kwargs: Any) -> Any:
        """Return a configuration object; stands for `AutoConfig.from_pretrained`."""
        del args
        model_id = str(path)
        self.log.add(model_id)
        if kwargs.get("revision"):
            self.log.revisions[model_id] = str(kwargs["revision"])
        if kwargs.get("trust_remote_code") and model_id not in self.log.remote_code:
            self.log.remote_code.append(model_id)
        if model_id not in self.configs:
            raise OSError(f"no Hugging Face configuration of {model_id!r} at hand (repository not found offline)")
        config = build_config(self.configs[model_id])
        config.name_or_path = model_id
        text = getattr(config, "text_config", None)
        if text is not None and not isinstance(text, dict):
            text.name_or_path = model_id
        return config

    def load_tokenizer(self, path: Any, *args: Any, **kwargs: Any) -> Any:
        """Return an object with the tokenizer's length; stands for `AutoTokenizer.from_pretrained`."""
        del args, kwargs
        tokenizer_id = str(path)
        self.log.tokenizer_ids.append(tokenizer_id)
        return HubObject("tokenizer", tokenizer_id, self.tokenizer_lengths.get(tokenizer_id))

    def load_processor(self, path: Any, *args: Any, **kwargs: Any) -> Any:
        """Return an inert object; stands for `from_pretrained` of image and video processors."""
        del args, kwargs
        return HubObject("processor", str(path), None)

    def rebase(self, provider: Any) -> Any:
        """Snapshot and track the text part that a multimodal provider handed out."""
        self.log.model = f"{self.log.model}#text"
        self.log.base = self.snapshot(self.log.model, provider)
        return track(provider)

    def install(self) -> None:
        """Replace network access in transformers and in the bridge tree; a tree without models asks for neither."""
        if importlib.util.find_spec("megatron.bridge") is None or _find("megatron.bridge.models") is None:
            return
        import transformers

        transformers.AutoConfig.from_pretrained = self.load_config
        transformers.AutoTokenizer.from_pretrained = self.load_tokenizer
        transformers.AutoProcessor.from_pretrained = self.load_processor
        transformers.ProcessorMixin.from_pretrained = self.load_processor
        loader = _find("megatron.bridge.models.hf_pretrained.safe_config_loader")
        if loader is not None:
            vars(loader)["safe_load_config_with_retry"] = self.load_config
        auto = _find("megatron.bridge.models.conversion.auto_bridge")
        if auto is not None:
            vars(auto)["safe_load_config_with_retry"] = self.load_config
            for entry in ("to_megatron_provider", "get_model_config"):
                if hasattr(auto.AutoBridge, entry):
                    setattr(auto.AutoBridge, entry, self._converting(getattr(auto.AutoBridge, entry)))
        flux = _find("megatron.bridge.diffusion.conversion.flux.flux_hf_pretrained")
        if flux is not None:
            flux.PreTrainedFlux._load_config = lambda pretrained: self.load_config(pretrained.model_name_or_path)

    def _converting(self, original: Any) -> Any:
        hub = self

        def convert(self: Any, *args: Any, **kwargs: Any) -> Any:
            provider = original(self, *args, **kwargs)
            source = self.hf_pretrained
            config = getattr(source, "config", source)
            name = getattr(source, "model_name_or_path", None) or getattr(config, "name_or_path", None) or "?"
            hub.log.model = f"{name}#{type(config).__name__}" if hub.is_part(name, config) else str(name)
            hub.log.base = hub.snapshot(hub.log.model, provider)
            return track(provider, rebase=hub.rebase)

        return convert

    def is_part(self, name: str, config: Any) -> bool:
        """Return whether a configuration is only a part (the text tower) of the one that the id names."""
        whole = self.configs.get(str(name), {})
        return "text_config" in whole and not hasattr(config, "text_config")


def build_config(data: Mapping[str, Any]) -> Any:
    """Make a transformers configuration from its JSON form.

    Model types that transformers does not know (remote code upstream) become a plain configuration with every key set.
    """
    import transformers
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    model_type = data.get("model_type")
    if model_type is None:
        return types.SimpleNamespace(**data)
    if model_type in CONFIG_MAPPING:
        return CONFIG_MAPPING[model_type].from_dict(dict(data))
    config = transformers.PretrainedConfig()
    # The rope properties of transformers 5 rewrite one another, so they are set last, the oldest spelling at the very end.
    late = ("rope_parameters", "rope_theta", "rope_scaling")
    for key in [key for key in data if key not in late] + [key for key in late if key in data]:
        value = data[key]
        if isinstance(value, dict) and key.endswith("_config") and key != "quantization_config":
            value = build_config(value) if "model_type" in value else _plain_config(value)
        try:
            setattr(config, key, value)
        except (AttributeError, TypeError):
            config.__dict__[key] = value
    return config


def _plain_config(data: Mapping[str, Any]) -> Any:
    import transformers

    config = transformers.PretrainedConfig()
    for key, value in data.items():
        setattr(config, key, value)
    return config


@dataclass(frozen=True)
class HubObject:
    """A tokenizer or processor that recipes may keep, or ask for its length.

    Attributes:
        kind: `tokenizer` or `processor`.
        hf_id: what was loaded.
        length: tokens, or None where it is not at hand.
    """

    kind: str
    hf_id: str
    length: int | None

    def __len__(self) -> int:
        if self.length is None:
            raise OSError(f"the number of tokens of {self.hf_id!r} is not at hand")
        return self.length

    def __bool__(self) -> bool:
        return True


def _find(module: str) -> types.ModuleType | None:
    """Import a module of the bridge tree, or return None where this release has none of that name."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and module.startswith(error.name):
            return None
        raise
