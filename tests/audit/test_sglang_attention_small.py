"""SGLang's attention on an engine of some lines in the same shape: keys that are selected, other names, latents."""

from pathlib import Path

import pytest

from sublight.audit.engines.base import Declaration, Route
from sublight.audit.engines.sglang import SGLANG
from sublight.audit.ladder import Answer
from sublight.audit.source.tree import Sources
from tests.audit.reading import edited, target, written

HERE = "sglang/srt/layers/attention"
FILES = {
    "sglang/srt/server_args.py": """
        import dataclasses

        @dataclasses.dataclass
        class ServerArgs:
            model_path: str
            quantization: str = None
            tp_size: int = 1
            attention_backend: str = None
            picking_decode_backend: str = None
            other_decode_backend: str = "elsewhere"

            def __post_init__(self):
                self._handle_attention_backend()

            def _handle_attention_backend(self):
                if self.attention_backend is None:
                    self.attention_backend = "picking"
                if self.picking_decode_backend is None:
                    self.picking_decode_backend = "quick"
        """,
    "sglang/srt/model_executor/forward_batch_info.py": """
        from enum import Enum

        class ForwardMode(Enum):
            DECODE = 1
        """,
    f"{HERE}/base.py": """
        class Base:
            def __init__(self, runner):
                self.runner = runner

            def forward(self, q, k, v, layer, forward_batch, **kwargs):
                return self.kernel(q, k, v)

            def get_indexer_metadata(self, layer_id, forward_batch):
                return None
        """,
    f"{HERE}/attention_registry.py": """
        ATTENTION_BACKENDS = {}

        def register_attention_backend(name):
            def decorator(fn):
                ATTENTION_BACKENDS[name] = fn
                return fn

            return decorator

        @register_attention_backend("plain")
        def create_plain(runner):
            from sglang.srt.layers.attention.backends import Plain

            return Plain(runner)

        @register_attention_backend("latent")
        def create_latent(runner):
            from sglang.srt.layers.attention.backends import Latent

            return Latent(runner)

        @register_attention_backend("picking")
        def create_picking(runner):
            from sglang.srt.layers.attention.backends import Picking

            return Picking(runner)

        @register_attention_backend("former")
        def _create_former(runner):
            return create_picking(runner)
        """,
    "sglang/srt/configs/model_config.py": """
        from enum import IntEnum, auto

        class AttentionArch(IntEnum):
            MLA = auto()
            MHA = auto()

        class ModelConfig:
            def __init__(self, hf_config):
                self.hf_config = hf_config
                self.width = 1

            def _derive(self):
                if "GlmMoeDsaForCausalLM" in self.hf_config.architectures:
                    self.attention_arch = AttentionArch.MLA
                    self.latent_rank = self.hf_config.latent_rank
                    self.width = 2
                else:
                    self.attention_arch = AttentionArch.MHA
                    self.groups = 4
        """,
    f"{HERE}/backends.py": """
        from sglang.srt.layers.attention.base import Base

        class Latent(Base):
            def __init__(self, runner):
                super().__init__(runner)
                self.width = runner.model_config.width + runner.model_config.heads
                self.rank = runner.model_config.latent_rank

            def kernel(self, q, k, v):
                from vendor.attention import latent_attention

                return latent_attention(q, k, v)

        class Indexed:
            def __init__(self, layer_id):
                self.layer_id = layer_id

        class Plain(Base):
            def kernel(self, q, k, v):
                from vendor.attention import plain_attention

                return plain_attention(q, k, v)

        class Picking(Base):
            def __init__(self, runner):
                super().__init__(runner)
                self.inner = runner.server_args.picking_decode_backend

            def kernel(self, q, k, v):
                from vendor.attention import sparse_attention

                return sparse_attention(q, k, v)

            def get_indexer_metadata(self, layer_id, forward_batch):
                return Indexed(layer_id)
        """,
}


@pytest.fixture
def sources(tmp_path: Path) -> Sources:
    return written(tmp_path, FILES)


def ask(sources: Sources, name: str, **more: object) -> Route:
    declaration = Declaration("attention", name, f"--attention-backend {name}", True, True, ())
    return SGLANG.route(sources, declaration, target((12, 0), **more))  # type: ignore[arg-type]


DENSE = {"model_type": "llama", "architecture": "LlamaForCausalLM", "shape": None}


def test_a_backend_that_gives_the_indexer_nothing_attends_to_every_key(sources: Sources) -> None:
    found = ask(sources, "plain")
    assert (found.answer, found.slow) == (Answer.PASS, "attends to every key, where the model selects some")
    assert found.why == (
        "Plain decodes, and attends to every key, where the model selects some: it gives the model's indexer nothing "
        f"({HERE}/base.py:9)"
    )
    own = ask(sources, "picking")
    assert (own.answer, own.slow, own.why) == (Answer.PASS, "", "Picking decodes with --picking-decode-backend quick")


def test_a_model_that_selects_no_keys_loses_nothing(sources: Sources) -> None:
    assert (ask(sources, "plain", **DENSE).slow, ask(sources, "plain", **DENSE).why) == ("", "Plain decodes")


def test_what_a_backend_gives_follows_its_own_method(sources: Sources) -> None:
    change = {f"{HERE}/backends.py": ("return Indexed(layer_id)", "return None")}
    assert ask(edited(sources, change), "picking").slow == "attends to every key, where the model selects some"
    unknown = {f"{HERE}/base.py": ("return None", "return self.runner.metadata")}
    assert ask(edited(sources, unknown), "plain").slow == ""


def test_a_name_whose_maker_calls_another_names_is_that_one(sources: Sources) -> None:
    found = ask(sources, "former")
    assert (found.answer, found.alias_of) == (Answer.PASS, "picking")
    assert found.why == "Picking decodes with --picking-decode-backend quick; former is another name of picking"
    assert [ask(sources, name).alias_of for name in ("picking", "plain")] == ["", ""]
    assert SGLANG.auto(sources, "attention", target((12, 0))).alias_of == ""


def test_what_only_other_kinds_of_attention_have_is_not_there(sources: Sources) -> None:
    assert ask(sources, "latent").answer is Answer.PASS
    found = ask(sources, "latent", **DENSE)
    assert found.answer is Answer.FAIL
    assert found.why == (
        "accepted, but fails when latent is made: a model with MHA attention has no attribute latent_rank"
    )
    assert found.proofs[-1].where == f"{HERE}/backends.py:8"
    for_all = {"model_config.py": ("self.width = 1", "self.width = 1\n        self.latent_rank = None")}
    assert ask(edited(sources, for_all), "latent", **DENSE).answer is Answer.PASS
    careful = {"backends.py": ("runner.model_config.latent_rank", 'getattr(runner.model_config, "latent_rank", 0)')}
    assert ask(edited(sources, careful), "latent", **DENSE).answer is Answer.PASS


def test_the_condition_of_a_refusal_is_one_on_its_own_way(sources: Sources) -> None:
    """An assertion on the other side of an open condition is no reason for it."""
    change = {"backends.py": (
        "        return plain_attention(q, k, v)\n",
        "        if isinstance(self.runner.metadata, Indexed):\n"
        "            assert self.runner.sink is not None\n"
        "            return plain_attention(q, k, v)\n"
        "        raise NotImplementedError('ragged')\n",
    )}  # fmt: skip
    refusing = {"backends.py": (change["backends.py"][0],
                                change["backends.py"][1].replace("self.runner.sink", "None"))}  # fmt: skip
    assert ask(edited(sources, change), "plain").answer is Answer.PASS
    found = ask(edited(sources, refusing), "plain")
    assert (found.answer, found.why) == (Answer.FAIL, "refused when a step is decoded: ragged")
    assert [proof.text for proof in found.proofs] == [
        "isinstance(self.runner.metadata, Indexed) (not known)",
        "NotImplementedError: ragged",
    ]
