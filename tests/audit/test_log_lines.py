"""From bytes to messages: prefixes, ranks, colours, damage; and arguments in Python's notation."""

import gzip
import json
from pathlib import Path

import pytest

from sublight.audit.log import read_log
from sublight.audit.log.echo import arguments, inner, whole_numbers, without_secrets
from sublight.audit.log.physical import LONGEST, Damage, physical_lines
from sublight.audit.log.record import FactKind
from sublight.audit.log.spoken import Listener, Speaker
from sublight.errors import InputFileError

NCCL = "vLLM is using nccl==2.28.9"
HEAD = "INFO 05-15 03:31:20 [pynccl.py:111] "


@pytest.mark.parametrize(
    ("line", "speaker"),
    [
        (f"{HEAD}{NCCL}", None),
        (f"(Worker_TP3 pid=353) {HEAD}{NCCL}", Speaker("TP3", "353")),
        (f"(Worker_DP1_TP3_EP11 pid=7) {HEAD}{NCCL}", Speaker("DP1 TP3 EP11", "7")),
        (f"(VllmWorker rank=2 pid=7) {HEAD}{NCCL}", Speaker("rank 2", "7")),
        (f"(EngineCore_DP0 pid=7) {HEAD}{NCCL}", Speaker("", "7", worker=False)),
        (f"(SpawnProcess-1 pid=7) {HEAD}{NCCL}", Speaker("", "7", worker=False)),
        (f"(EngineCore_DP0 pid=7) (RayWorkerWrapper pid=9, ip=192.0.2.1) {HEAD}{NCCL}", Speaker("", "9")),
        (f"[2026-11-30 04:02:07 DP1 TP0] {NCCL}", Speaker("DP1 TP0", "")),
        (f"[2026-11-30 04:02:07] {NCCL}", None),
        (f"vllm-1  | (Worker_TP0 pid=1) {HEAD}{NCCL}", Speaker("TP0", "1")),
        (f"2026-05-15T03:31:20.123456Z stderr F (Worker_TP0 pid=1) {HEAD}{NCCL}", Speaker("TP0", "1")),
        (f"May 15 03:31:20 box vllm[12]: {HEAD}{NCCL}", None),
        (f"INFO:sglang.srt.x:{NCCL}", None),
        (f"\x1b[32mINFO\x1b[0m 05-15 03:31:20 [pynccl.py:111] {NCCL}", None),
        (f"INFO 08-01 10:00:00 pynccl.py:63] {NCCL}", None),
        (f"100%|##########| 5/5 [00:02<00:00,  1.72it/s](Worker_TP1 pid=4) {HEAD}{NCCL}", Speaker("TP1", "4")),
    ],
)
def test_prefixes(line: str, speaker: Speaker | None) -> None:
    *_, last = Listener().hear(line)
    assert (last.message, last.speaker, last.sure) == (NCCL, speaker, True)


def test_prefixes_that_pile_up_wait_for_their_messages() -> None:
    listener = Listener()
    lines = [f"(Worker_TP3 pid=3) (Worker_TP4 pid=4) (Worker_TP6 pid=6) {HEAD}a", f"{HEAD}a", f"{HEAD}a", f"{HEAD}b"]
    heard = [spoken for line in lines for spoken in listener.hear(line)]
    assert [(s.message, s.speaker and s.speaker.rank, s.sure) for s in heard] == [
        ("a", "TP6", False),
        ("a", "TP4", False),
        ("a", "TP3", False),
        ("b", None, True),
    ]


def test_what_ray_folds_together_is_counted() -> None:
    (spoken,) = Listener().hear(
        f"(RayWorkerWrapper pid=9) {HEAD}{NCCL} [repeated 7x across cluster] (Ray deduplicates)"
    )
    assert (spoken.message, spoken.times) == (NCCL, 7)


def test_a_prompt_in_the_log_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(
        f"{HEAD}{NCCL}\n{HEAD}Received request 1: prompt: 'Using ''MARLIN'' NvFp4 MoE backend.'\n"
    )
    with pytest.raises(InputFileError, match="none of its 2 lines"):
        read_log(tmp_path / "a.log")


class TestBytes:
    START = f"{HEAD}Initializing a V1 LLM engine (v0.33.0) with config: model='m', tensor_parallel_size=1\n"

    def lines(self, tmp_path: Path, data: bytes) -> tuple[list[str], tuple[str, ...]]:
        (tmp_path / "a.log").write_bytes(data)
        damage = Damage()
        return list(physical_lines(tmp_path / "a.log", damage)), damage.said()

    def test_a_last_line_without_its_end_counts(self, tmp_path: Path) -> None:
        assert self.lines(tmp_path, b"a\n\nb") == (["a", "", "b"], ())

    def test_zero_bytes_of_a_rotated_file(self, tmp_path: Path) -> None:
        assert self.lines(tmp_path, b"\0" * 3_000_000 + b"a\nb\0\n") == (
            ["a", "b"],
            ("3,000,001 zero bytes were dropped",),
        )

    def test_a_line_without_end_keeps_its_beginning(self, tmp_path: Path) -> None:
        lines, said = self.lines(tmp_path, b"x" * (5 * LONGEST) + b"\nb\n")
        assert [len(line) for line in lines] == [LONGEST, 1]
        assert said == (f"1 line is longer than {LONGEST:,} bytes; only the beginning was read",)

    def test_bytes_that_are_no_text(self, tmp_path: Path) -> None:
        lines, said = self.lines(tmp_path, b"caf\xe9\nb\n")
        assert lines == ["caf\ufffd", "b"]
        assert said == ("1 line is not UTF-8; the bytes in question were replaced",)

    def test_gzip_whole_and_cut(self, tmp_path: Path) -> None:
        data = gzip.compress((self.START + f"{HEAD}{NCCL}\n" * 500).encode())
        (tmp_path / "a.log.gz").write_bytes(data)
        assert read_log(tmp_path / "a.log.gz").of(FactKind.NCCL)[0].times == 500
        (tmp_path / "cut.log.gz").write_bytes(data[:-20])
        log = read_log(tmp_path / "cut.log.gz")
        assert log.engine_version == "0.33.0"
        assert log.damage[0].startswith("the gzip stream ends or breaks early")

    def test_lines_as_docker_keeps_them(self, tmp_path: Path) -> None:
        text = json.dumps({"log": self.START, "stream": "stderr", "time": "2026-05-15T03:31:20Z"})
        (tmp_path / "a.log").write_text(text + '\n{"log": broken\n')
        assert read_log(tmp_path / "a.log").engine_version == "0.33.0"

    def test_lines_of_a_json_formatter(self, tmp_path: Path) -> None:
        said = [
            {
                "asctime": "2026-05-15 03:31:20,1",
                "levelname": "INFO",
                "processName": "Worker_TP1",
                "process": 7,
                "message": m,
            }
            for m in (self.START.removeprefix(HEAD), NCCL)
        ]
        (tmp_path / "a.log").write_text("\n".join(map(json.dumps, said)))
        log = read_log(tmp_path / "a.log")
        assert log.engine_version == "0.33.0"
        assert (log.of(FactKind.NCCL)[0].first.line, log.of(FactKind.NCCL)[0].ranks) == (2, ("TP1",))

    @pytest.mark.parametrize(
        ("data", "found"),
        [
            (b"", "none of its 0 lines"),
            (b"hello\nworld\n", "none of its 2 lines"),
            (b"\x7fELF" + bytes(99), "it is a program"),
            (b"\xff\xfea\0b\0", "it is UTF-16 text"),
            (b"\x28\xb5\x2f\xfd" + bytes(9), "it is compressed with zstd"),
            (b"\x1f\x8bnot gzip", "none of its 0 lines"),
        ],
    )
    def test_what_is_no_log(self, tmp_path: Path, data: bytes, found: str) -> None:
        (tmp_path / "a.log").write_bytes(data)
        with pytest.raises(InputFileError, match=found):
            read_log(tmp_path / "a.log")

    def test_what_is_no_file(self, tmp_path: Path) -> None:
        for path, found in ((tmp_path, "it is a folder"), (tmp_path / "no.log", "No such file"), ("a\0b", "null")):
            with pytest.raises(InputFileError, match=found):
                read_log(path)

    def test_standard_input(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "a.log").write_text(self.START)
        with (tmp_path / "a.log").open() as file:
            monkeypatch.setattr("sys.stdin", file)
            log = read_log("-")
        assert (log.name, log.engine_version) == ("standard input", "0.33.0")

    def test_lines_of_another_engine_are_left_out(self, tmp_path: Path) -> None:
        other = "[2026-08-14 09:26:53] Detected nvfp4 checkpoint.\n"
        (tmp_path / "a.log").write_text(self.START + other)
        log = read_log(tmp_path / "a.log")
        assert log.of(FactKind.CHECKPOINT) == ()
        assert log.damage == ("1 line of another engine was left out",)

    def test_a_pipe_or_device_is_not_waited_for(self) -> None:
        with pytest.raises(InputFileError, match="it is not a regular file"):
            read_log("/dev/zero")


class TestSeveralStarts:
    def test_the_last_start_counts(self, tmp_path: Path) -> None:
        first = [
            f"{HEAD}non-default args: {{'moe_backend': 'marlin'}}",
            f"{HEAD}Initializing a V1 LLM engine (v0.20.2) with config: model='m'",
            f"{HEAD}Using 'MARLIN' NvFp4 MoE backend out of potential backends: ['MARLIN'].",
        ]
        second = [line.replace("MARLIN", "B12X").replace("marlin", "b12x") for line in first]
        (tmp_path / "a.log").write_text("\n".join([*first, *second]))
        log = read_log(tmp_path / "a.log")
        assert log.starts == (1, 4)
        assert [f.get("backend") for f in log.of(FactKind.MOE_BACKEND)] == ["B12X"]
        assert log.asked.get("moe_backend") == "b12x"

    def test_what_is_said_before_the_arguments_is_of_the_same_start(self, tmp_path: Path) -> None:
        def start(backend: str) -> list[str]:
            return [
                f"[2026-08-14 09:26:53] Use {backend} as MoE runner backend on sm100 for DeepseekV3ForCausalLM",
                f"[2026-08-14 09:26:53] server_args=ServerArgs(moe_runner_backend='{backend}')",
                f"[2026-08-14 09:26:53] server_args=ServerArgs(moe_runner_backend='{backend}')",
                "[2026-08-14 09:26:53] Load weight end. type=M, quant=fp8, avail mem=1.00 GB, mem usage=2.00 GB.",
            ]

        (tmp_path / "a.log").write_text("\n".join([*start("flashinfer_trtllm"), *start("cutlass")]))
        log = read_log(tmp_path / "a.log")
        assert log.starts == (2, 6)
        assert [(f.get("backend"), f.first.line) for f in log.of(FactKind.MOE_RUNNER)] == [("cutlass", 5)]

    def test_processes_of_one_start_print_their_arguments_each(self, tmp_path: Path) -> None:
        lines = [f"(APIServer pid={n}) {HEAD}non-default args: {{'model': 'm'}}" for n in (1, 2)]
        (tmp_path / "a.log").write_text("\n".join(lines))
        assert read_log(tmp_path / "a.log").starts == (1,)


class TestEcho:
    def test_nested_values_keep_their_text(self) -> None:
        text = "a='x, y', b=[1, 2], c=Mode(x=<M.F: (2, 1)>, y='it\\'s'), d=None, e={'k': {'n': 3}}"
        found = {a.name: a.text for a in arguments(text)}
        assert found == {
            "a": "'x, y'",
            "b": "[1, 2]",
            "c": "Mode(x=<M.F: (2, 1)>, y='it\\'s')",
            "d": "None",
            "e": "{'k': {'n': 3}}",
        }
        assert [(a.name, a.value) for a in inner(found["e"])] == [("k", "{'n': 3}")]
        assert [(a.name, a.value) for a in inner(found["c"])] == [("x", "<M.F: (2, 1)>"), ("y", "it\\'s")]

    def test_what_follows_the_list_is_not_of_it(self) -> None:
        assert [a.name for a in arguments("a=1, b=2) and c=3, d=4")] == ["a", "b"]

    def test_a_value_that_was_cut_is_left_out(self) -> None:
        assert [a.name for a in arguments("'a': 1, 'b': [1, 2")] == ["a"]
        assert [a.name for a in arguments("'a': 1, 'b': 'xy")] == ["a"]

    def test_lists_of_whole_numbers(self) -> None:
        assert whole_numbers("[1, 2, 16]") == (1, 2, 16)
        assert whole_numbers("[1, x]") == whole_numbers("[]") == whole_numbers("None") == ()

    @pytest.mark.parametrize(
        ("text", "safe"),
        [
            ("api_key='s3', port=1", "api_key=<hidden>, port=1"),
            ("'api_key': ['s3', 't4'], 'x': 1", "'api_key': <hidden>, 'x': 1"),
            ("admin_api_key=None, hf_token=abc", "admin_api_key=None, hf_token=<hidden>"),
            ("ssl_keyfile_password='p'", "ssl_keyfile_password=<hidden>"),
            ("max_total_num_tokens=5, tokenizer='m'", "max_total_num_tokens=5, tokenizer='m'"),
        ],
    )
    def test_secrets(self, text: str, safe: str) -> None:
        assert without_secrets(text) == safe
