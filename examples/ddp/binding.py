"""Uses oarlock::ddp through its C ABI (oarlock_ddp.h) from Python with ctypes, as a binding in any language would.

  binding.py liboarlock_ddp_c.so

Fits a line with gradients in plain memory, which all_reduce() averages; then, if the package torch has the LibTorch of the library,
trains a torch.nn module whose gradients are averaged during the backward pass. Each rank has its own samples.
"""
import array
import ctypes
import sys

try:
    import torch  # loads LibTorch, which the library then shares
except ImportError:
    torch = None

P, I, L = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64
FLOAT64, SUM = 7, 0


class Error(ctypes.Structure):
    _fields_ = [("code", I), ("message", ctypes.c_char * 1020)]


class Tensor(ctypes.Structure):
    _fields_ = [("at_tensor", P), ("data", P), ("sizes", ctypes.POINTER(L)), ("dimensions", I), ("dtype", I)]


class ModelTensor(ctypes.Structure):
    _fields_ = [("at_tensor", P), ("name", ctypes.c_char_p)]


library = ctypes.CDLL(sys.argv[1])


def call(function, *arguments):
    """Calls a function whose last argument is an error, and raises it."""
    error = Error()
    if getattr(library, "oarlock_ddp_" + function)(*arguments, ctypes.byref(error)):
        raise RuntimeError(f"{function}: {error.message.decode()} ({error.code})")


def handle(tensor):
    """at::Tensor is one pointer, which Python calls _cdata. Returns the memory of an at::Tensor that is only read."""
    return P(tensor._cdata)


def fit_line(group, rank, ranks):
    samples = [(x, 3 * x - 2) for x in (i / 8 for i in range(16))][rank::ranks]
    slope = intercept = 0.0
    for _ in range(200):
        errors = [(x, slope * x + intercept - y) for x, y in samples]
        gradient = array.array("d", [sum(e * x for x, e in errors), sum(e for _, e in errors)])
        memory = Tensor(None, gradient.buffer_info()[0], (L * 1)(2), 1, FLOAT64)
        call("all_reduce", group, ctypes.byref(memory), SUM)
        slope, intercept = slope - gradient[0] / 24, intercept - gradient[1] / 24
    print(f"rank {rank}: line {slope:.6f} x + {intercept:.6f}")


def train_module(group, rank, ranks):
    torch.manual_seed(rank)  # the model gets the parameters of rank 0
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)).double()
    handles = [(name.encode(), handle(tensor)) for name, tensor in net.named_parameters()]
    parameters = (ModelTensor * len(handles))(*((ctypes.addressof(at_tensor), name) for name, at_tensor in handles))
    model = P()
    call("model_create", group, parameters, ctypes.c_size_t(len(handles)), None, ctypes.c_size_t(0), None, ctypes.byref(model))
    inputs = torch.linspace(-1, 1, 64 * ranks, dtype=torch.double).reshape(16 * ranks, 4)[rank::ranks]
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(20):
        optimizer.zero_grad()
        call("model_begin_forward", model)
        output = net(inputs)
        outputs = (P * 1)(ctypes.addressof(at_tensor := handle(output)))
        call("model_end_forward", model, outputs, ctypes.c_size_t(1))
        loss = (output - inputs.sum(1, keepdim=True)).square().mean()
        loss.backward()
        optimizer.step()
        del at_tensor
    call("model_check_equal", model)
    library.oarlock_ddp_model_free(model)
    print(f"rank {rank}: module {sum(parameter.sum().item() for parameter in net.parameters()):.9f}")


def main():
    library.oarlock_ddp_torch_version.restype = ctypes.c_char_p
    group = P()
    call("group_create", None, ctypes.byref(group))  # RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT
    rank, ranks = library.oarlock_ddp_group_rank(group), library.oarlock_ddp_group_world_size(group)
    fit_line(group, rank, ranks)
    if torch and torch.__version__.startswith(library.oarlock_ddp_torch_version().decode()):
        train_module(group, rank, ranks)
    library.oarlock_ddp_group_free(group)


main()
