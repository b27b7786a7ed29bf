"""Reports the progress of a training program to Oarlock, and receives its requests for checkpoints.

    import oarlock
    oarlock.report(step=step, target_steps=1000, loss=loss, accuracy=0.9)

The file has no dependencies, so that a program can contain a copy of it. Outside of `oarlock launch`, reports do nothing.
"""
import math
import os
import stat
import sys
from json.encoder import encode_basestring_ascii as _quoted

__version__ = "0.1.0"
__all__ = ["report", "checkpoint_requested", "LightningCallback"]

_MAX_LINE = 4096  # bytes with the newline: PIPE_BUF of Linux, below which lines of several writers are not mixed
_fifo = None      # descriptor of the FIFO that OARLOCK_PROGRESS names; None: not opened yet; -1: there is none
_rank = None      # RANK when the FIFO was opened


def _request_time():
    """When the launcher last replaced the file of requests; None: never, or there is no launcher."""
    try:
        return os.stat(os.environ["OARLOCK_CHECKPOINT_REQUEST"]).st_mtime_ns
    except (KeyError, OSError):
        return None


_requested = _request_time()  # of the last request that is known; those of an earlier process do not count


def checkpoint_requested():
    """Returns whether a checkpoint was requested since the last call, because a node of the job is about to be drained or
    removed. Only processes on the first node receive requests, so rank 0 should broadcast the result, and all ranks save
    after the same step. A call takes about a microsecond, never waits and never raises.
    """
    global _requested  # pylint: disable=global-statement
    known, _requested = _requested, _request_time()
    return _requested is not None and _requested != known


def report(step=None, loss=None, target_steps=None, checkpoint_step=None, samples_per_second=None, phase=None, rank=None,
           **metrics):
    """Reports what changed: any of these fields, and numbers under other names.

    `step` counts optimizer steps over all restarts, `checkpoint_step` is that of the newest checkpoint that is completely
    written, and `samples_per_second` is the throughput of the whole job. The rank is RANK of the environment, unless
    `rank` replaces it. Numbers may be tensors of one element; reading one from a GPU waits for it. A value that is not a
    finite number is left out.

    Never waits for the launcher and never raises. Returns whether the report was written; it is dropped, for example, while
    the launcher has not read the ones before. Threads and forked processes may call it at the same time.
    """
    return _report({"step": step, "targetSteps": target_steps, "checkpointStep": checkpoint_step, "rank": rank},
                   {"loss": loss, "samplesPerSecond": samples_per_second}, metrics, phase)


def _report(integers, numbers, metrics, phase=None):
    try:
        if not _is_open():
            return False
        line = _members(integers, int) + _members(numbers, float)
        if phase is not None:
            line.append('"phase":' + _quoted(str(phase)))
        known = ",".join(_members(metrics, float))
        if not line and not known:
            return False
        if _rank is not None and integers["rank"] is None:
            line.append('"rank":%d' % _rank)
        # If the metrics are too long, the line is written without them.
        for members in (line + ['"metrics":{%s}' % known] if known else line, line):
            data = ("{%s}\n" % ",".join(members)).encode()
            if len(data) <= _MAX_LINE:
                return os.write(_fifo, data) == len(data)
    except Exception:  # pylint: disable=broad-except
        pass
    return False


def _members(values, convert):
    """Members of a JSON object, without the values that are not finite numbers. Takes half as long as `json.dumps`."""
    members = []
    for name, value in values.items():
        if value is not None:
            try:
                number = convert(value.item() if hasattr(value, "item") else value)  # of a tensor, which may require a gradient
                if math.isfinite(number):
                    members.append("%s:%r" % (_quoted(str(name)), number))
            except Exception:  # pylint: disable=broad-except
                pass
    return members


def _is_open():
    global _fifo, _rank  # pylint: disable=global-statement
    if _fifo is None:
        _fifo = -1
        path = os.environ.get("OARLOCK_PROGRESS")
        if path and stat.S_ISFIFO(os.stat(path).st_mode):
            rank = os.environ.get("RANK", "")
            _rank = int(rank) if rank.isdigit() else None
            # Open for reading, too, so that a launcher that has ended causes no SIGPIPE; the FIFO fills up instead.
            _fifo = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    return _fifo >= 0


def __getattr__(name):
    """Defines LightningCallback when it is first used, since it needs Lightning."""
    if name != "LightningCallback":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if "lightning" not in sys.modules and "pytorch_lightning" in sys.modules:
        from pytorch_lightning import Callback
    else:
        from lightning.pytorch import Callback

    class LightningCallback(Callback):
        """Reports each optimizer step of a Trainer, and with it every log_every_n_steps steps the loss and logged metrics.

        A checkpoint is reported with the next step after the Trainer wrote it.
        """
        __qualname__ = name  # for pickle

        def __init__(self):
            self._total, self._reported, self._saved = None, None, None

        def _report(self, trainer, loss=None, metrics=True):
            self._reported = trainer.global_step
            _report({"step": trainer.global_step, "targetSteps": self._total, "checkpointStep": self._saved,
                     "rank": trainer.global_rank}, {"loss": loss}, trainer.callback_metrics if metrics else {})

        def on_train_start(self, trainer, pl_module):
            try:
                self._total = trainer.estimated_stepping_batches
            except Exception:  # pylint: disable=broad-except
                pass  # not known, for example with another accumulation of gradients in each epoch
            self._report(trainer)

        def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
            if trainer.global_step == self._reported:
                return  # gradients are being accumulated
            if trainer.global_step % max(1, trainer.log_every_n_steps):
                self._report(trainer, metrics=False)
            else:
                self._report(trainer, outputs.get("loss") if isinstance(outputs, dict) else outputs)

        def on_save_checkpoint(self, trainer, pl_module, checkpoint):
            self._saved = trainer.global_step

        def on_load_checkpoint(self, trainer, pl_module, checkpoint):
            self._saved = checkpoint["global_step"]

        def teardown(self, trainer, pl_module, stage):
            if stage == "fit":
                self._report(trainer)

    globals()[name] = LightningCallback
    return LightningCallback
