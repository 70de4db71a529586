"""One process of a model that several hold together; `ModelProcesses` starts it under torchrun."""

from __future__ import annotations

import faulthandler
import os
import sys
from datetime import timedelta
from multiprocessing.connection import Client, Connection

import psutil
import torch
import torch.distributed as dist

from rbptrack.base.errors import BadInput, first_line
from rbptrack.models.causal import CausalModel
from rbptrack.models.device import free_memory, out_of_memory
from rbptrack.models.group_messages import ADDRESS, KEY, Done, Load, Loaded, Trouble, Work
from rbptrack.models.tensor_parallel import load_share
from rbptrack.scoring.parallel import ParallelScorer

_SILENCE = timedelta(minutes=10)  # of one process, after which the others give up: loading takes minutes

_ANOTHER_LOST = ("Connection closed by peer", "Connection reset by peer", "ncclRemoteError")  # of gloo and NCCL


def main() -> None:
    """Load a share of the model, then score batches until the connection closes."""
    faulthandler.enable()
    link = Client(os.environ[ADDRESS], authkey=os.environ[KEY].encode())
    link.send(int(os.environ["RANK"]))  # before anything that waits for the other processes
    try:
        device = _device()
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=_SILENCE)
        _serve(link, device)
    except (EOFError, ConnectionError):  # the measuring process is done, or gone
        pass
    except BadInput as error:
        link.send(Trouble("input", str(error)))
    except Exception as error:
        if not any(words in str(error) for words in _ANOTHER_LOST):  # torchrun says which one
            link.send(
                Trouble("memory" if out_of_memory(error) else "fault", f"{type(error).__name__}: {first_line(error)}")
            )
    sys.stdout.flush()
    os._exit(0)  # the other processes may wait in a collective: no farewell that would wait for them


def _device() -> torch.device:
    if not torch.cuda.is_available():
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    return device


def _serve(link: Connection, device: torch.device) -> None:
    wanted = link.recv()
    assert isinstance(wanted, Load)  # noqa: S101
    model, drift = load_share(wanted.config, wanted.source, device, candidates=wanted.candidates)
    link.send(_described(model, drift))
    scorer: ParallelScorer | None = None
    while True:
        work = link.recv()
        assert isinstance(work, Work)  # noqa: S101
        assert model.shard is not None  # noqa: S101
        if scorer is None or scorer.chunk != work.chunk_tokens:
            scorer = None  # its buffers first
            scorer = ParallelScorer(model.head, model.shard, chunk_tokens=work.chunk_tokens)
        link.send(_scored(model, scorer, work))


@torch.inference_mode()
def _scored(model: CausalModel, scorer: ParallelScorer, work: Work) -> Done:
    token_ids, state_index, target_ids = (
        torch.from_numpy(array).to(model.device) for array in (work.token_ids, work.state_index, work.target_ids)
    )
    hidden = model.backbone(token_ids).flatten(0, 1)  # (sequences * length, width)
    scores = scorer(hidden[state_index], target_ids)
    columns = {name: column.cpu().numpy() for name, column in scores.columns.items()}
    kept = columns if dist.get_rank() == 0 else None
    return Done(kept, _peak(model.device))


def _described(model: CausalModel, drift: float) -> Loaded:
    assert model.shard is not None  # noqa: S101
    return Loaded(
        non_embedding_params=model.non_embedding_params,
        total_params=model.total_params,
        vocab_size=model.shard.vocab_size,
        width=model.head.weight.shape[1],
        widest=model.widest,
        heads=model.heads,
        dtype=model.head.weight.dtype,
        device=model.device.type,
        free_bytes=free_memory(model.device),
        drift=drift,
    )


def _peak(device: torch.device) -> int:
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    return int(psutil.Process().memory_info().rss)


if __name__ == "__main__":
    main()
