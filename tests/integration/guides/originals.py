"""Models with the names and shapes of the Python originals of docs/from-python, and their outputs, for
python_weights_test.py, which compares them with values that the originals computed (tests/data). SEDD is in
tests/bench/rival/sedd.py, and the network of the guide "TrainingEngine" in tests/data/make_resnet_goldens.py."""
import itertools

import torch
from torch import nn


def mlp(sizes, norm=True):
    layers = []
    for inputs, outputs in itertools.pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), *([nn.BatchNorm1d(outputs)] if norm else []), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def holder(name, module):
    """A module that contains another one under a name."""
    out = nn.Module()
    out.add_module(name, module)
    return out


# ---- GEARS -----------------------------------------------------------------------------------------------------------


def normalized_graph(edges, weights, nodes):
    """The matrix [target, source] of torch_geometric's gcn_norm(), which adds missing self-loops."""
    matrix = torch.zeros(nodes, nodes)
    matrix[edges[1], edges[0]] = weights
    loops = matrix.diagonal()
    loops[loops == 0] = 1
    scale = matrix.sum(1).pow(-0.5)
    return scale[:, None] * matrix * scale


class Gears(nn.Module):
    """GEARS_Model. Cells after the first one of a batch do not see the co-expression, as in the original."""

    def __init__(self, genes, perturbations, hidden, coexpression, ontology):
        super().__init__()
        self.coexpression, self.ontology = coexpression, ontology
        self.pert_w = nn.Linear(1, hidden)
        self.gene_emb = nn.Embedding(genes, hidden, max_norm=True)
        self.pert_emb = nn.Embedding(perturbations, hidden, max_norm=True)
        self.emb_trans_v2 = holder("network", mlp([hidden, hidden, hidden]))
        self.pert_fuse = holder("network", mlp([hidden, hidden, hidden]))
        self.emb_pos = nn.Embedding(genes, hidden, max_norm=True)
        self.layers_emb_pos = nn.ModuleList([holder("lin", nn.Linear(hidden, hidden))])
        self.sim_layers = nn.ModuleList([holder("lin", nn.Linear(hidden, hidden))])
        self.recovery_w = holder("network", mlp([hidden, 2 * hidden, hidden]))
        self.indv_w1, self.indv_b1 = nn.Parameter(torch.zeros(genes, hidden, 1)), nn.Parameter(torch.zeros(genes, 1))
        self.cross_gene_state = holder("network", mlp([genes, hidden, hidden]))
        self.indv_w2, self.indv_b2 = nn.Parameter(torch.zeros(1, genes, hidden + 1)), nn.Parameter(torch.zeros(1, genes))
        self.bn_emb, self.bn_pert_base, self.bn_pert_base_trans = (nn.BatchNorm1d(hidden) for _ in range(3))

    def forward(self, expression, perturbed):
        """Expression [cells, genes], and for each cell a list of perturbed genes."""
        cells, genes = expression.shape
        numbers = torch.arange(genes).repeat(cells)
        positions = self.emb_pos(numbers)
        seen = torch.cat([self.coexpression @ positions[:genes], positions[genes:]])
        states = torch.relu(self.bn_emb(self.gene_emb(numbers))) + 0.2 * self.layers_emb_pos[0].lin(seen)
        states = self.emb_trans_v2.network(states).view(cells, genes, -1).clone()
        known = self.sim_layers[0].lin(self.ontology @ self.pert_emb(torch.arange(len(self.pert_emb.weight))))
        changed = [cell for cell, names in enumerate(perturbed) if names]
        if changed:
            sums = torch.stack([known[perturbed[cell]].sum(0) for cell in changed])
            states[changed] += self.pert_fuse.network(sums)[:, None]
        states = torch.relu(self.bn_pert_base(states.flatten(0, 1)))
        recovered = self.recovery_w.network(states).view(cells, genes, -1)
        own = (recovered[..., None] * self.indv_w1).sum((2, 3)) + self.indv_b1[:, 0]
        cross = self.cross_gene_state.network(own)[:, None].expand(cells, genes, -1)
        both = torch.cat([own[..., None], cross], 2)
        return (both * self.indv_w2).sum(2) + self.indv_b2 + expression


# ---- QuantumGrav -----------------------------------------------------------------------------------------------------


class SageBlock(nn.Module):
    """A GNNBlock with SAGEConv(root_weight=False) and a skip connection."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.normalizer = nn.BatchNorm1d(outputs)
        self.conv = holder("lin_l", nn.Linear(inputs, outputs))
        self.skip = holder("proj", nn.Linear(inputs, outputs, bias=False)) if inputs != outputs else None

    def forward(self, x, edges):
        counts = torch.zeros(len(x)).index_add(0, edges[1], torch.ones(edges.shape[1]))
        means = torch.zeros_like(x).index_add(0, edges[1], x[edges[0]]) / counts.clamp_min(1)[:, None]
        return torch.relu(self.normalizer(self.conv.lin_l(means))) + (x if self.skip is None else self.skip.proj(x))


def per_graph(function, x, batch):
    return torch.stack([function(x[batch == graph]) for graph in range(int(batch.max()) + 1)])


POOLING = {"mean": lambda x: x.mean(0), "max": lambda x: x.amax(0), "sum": lambda x: x.sum(0)}


class QuantumGrav(nn.Module):
    """The GNNModel with SageBlocks of the widths `dims`, and heads with the layers `heads`."""

    def __init__(self, dims, pooling, heads):
        super().__init__()
        self.pooling = pooling
        self.encoder = holder("blocks", nn.ModuleList([SageBlock(*pair) for pair in itertools.pairwise(dims)]))
        self.downstream_tasks = nn.ModuleList(
            [holder("layers", mlp([len(pooling) * dims[-1], *head], norm=False)) for head in heads])

    def forward(self, x, edge_index, batch):
        """The outputs of each head, [graphs, outputs]."""
        for block in self.encoder.blocks:
            x = block(x, edge_index)
        pooled = torch.cat([per_graph(POOLING[name], x, batch) for name in self.pooling], 1)
        return [head.layers(pooled) for head in self.downstream_tasks]


# ---- ComFormer -------------------------------------------------------------------------------------------------------


def two_layers(inputs, width):
    return nn.Sequential(nn.Linear(inputs, width), nn.SiLU(), nn.Linear(width, width))


class Basis(nn.Module):
    """RBFExpansion, whose centers are a buffer."""

    def __init__(self, first, last, bins):
        super().__init__()
        self.register_buffer("centers", torch.linspace(first, last, bins))
        self.spacing = (last - first) / (bins - 1)

    def forward(self, x):
        return torch.exp(-(x[..., None] - self.centers).square() / self.spacing)


class Attention(nn.Module):
    """The layers that both kinds of attention have."""

    def __init__(self, width):
        super().__init__()
        self.lin_key, self.lin_query, self.lin_value = (nn.Linear(width, width) for _ in range(3))
        self.lin_concate = nn.Linear(width, width)
        self.lin_msg_update, self.key_update = two_layers(3 * width, width), two_layers(3 * width, width)
        self.bn, self.bn_att = nn.BatchNorm1d(width), nn.BatchNorm1d(width)

    def messages(self, query, keys, values, between):
        gate = query * self.key_update(torch.cat([*keys, between], -1)) / query.shape[-1] ** 0.5
        gate = torch.sigmoid(self.bn_att(gate.flatten(0, -2)).view_as(gate))
        return self.lin_msg_update(torch.cat([*values, between], -1)) * gate

    def update(self, x, change):
        return nn.functional.softplus(x + self.bn(change))


class Convolution(Attention):
    def __init__(self, width):
        super().__init__(width)
        self.lin_edge = nn.Linear(width, width)

    def forward(self, x, edges, source, target):
        key, value = self.lin_key(x), self.lin_value(x)
        messages = self.messages(self.lin_query(x)[target], [key[target], key[source]], [value[target], value[source]],
                                 self.lin_edge(edges))
        return self.update(x, self.lin_concate(torch.zeros_like(x).index_add(0, target, messages)))


class EdgeUpdate(Attention):
    def __init__(self, width):
        super().__init__(width)
        self.lemb, self.lin_edge_len = nn.Embedding(3, 32), nn.Linear(width + 32, width)  # never used
        self.lin_edge = nn.Linear(width, width, bias=False)
        for kind in ("key", "value"):
            for vector in (1, 2, 3):
                self.add_module(f"lin_{kind}_e{vector}", nn.Linear(width, width))

    def forward(self, edges, lengths, angles):
        def of_lattice(kind):
            return torch.stack([getattr(self, f"lin_{kind}_e{i + 1}")(lengths[:, i]) for i in range(3)], 1)

        def three_times(x):
            return x[:, None].expand_as(angles)

        messages = self.messages(three_times(self.lin_query(edges)), [three_times(self.lin_key(edges)), of_lattice("key")],
                                 [three_times(self.lin_value(edges)), of_lattice("value")], self.lin_edge(angles))
        return self.update(edges, self.lin_concate(messages).sum(1))


class Icomformer(nn.Module):
    """iComFormer with 4 layers."""

    def __init__(self, node, edge, triplet, fc):
        super().__init__()
        self.atom_embedding = nn.Linear(92, node)
        self.rbf = nn.Sequential(Basis(-4, 0, edge), nn.Linear(edge, node), nn.Softplus())
        self.rbf_angle = nn.Sequential(Basis(-1, 1, triplet), nn.Linear(triplet, node), nn.Softplus())
        self.att_layers = nn.ModuleList([Convolution(node) for _ in range(4)])
        self.edge_update_layer = EdgeUpdate(node)
        self.fc = nn.Sequential(nn.Linear(node, fc), nn.SiLU())
        self.fc_out = nn.Linear(fc, 1)

    def forward(self, data):
        """The output for each crystal; edge_nei has the lattice vectors at each edge."""
        x, edge_index, edge_attr, edge_nei, batch = data
        edges = self.rbf(-0.75 / edge_attr.norm(dim=-1))
        angles = nn.functional.cosine_similarity(edge_attr[:, None], edge_nei, dim=-1)
        x = self.att_layers[0](self.atom_embedding(x), edges, *edge_index)
        edges = self.edge_update_layer(edges, self.rbf(-0.75 / edge_nei.norm(dim=-1)), self.rbf_angle(angles))
        for layer in self.att_layers[1:]:
            x = layer(x, edges, *edge_index)
        return self.fc_out(self.fc(per_graph(POOLING["mean"], x, batch)))[:, 0]
