// What the models see of a batch of crystals.
#pragma once

#include <ATen/core/Tensor.h>

namespace oarlock {

// n atoms, e edges and g crystals. Edges come by destination, each with its reverse among them, as crystal_graph() and
// GraphCollation leave them.
struct CrystalBatch {
  at::Tensor atoms;         // [n, atom features]
  at::Tensor edge_index;    // int64 [2, e]: source, destination
  at::Tensor edge_begin;    // int64 [n + 1]: where the edges to each atom begin
  at::Tensor edge_vectors;  // [e, 3], from source to destination, angstrom
  at::Tensor lattices;      // [g, 3, 3], rows: see lattice_vectors.h
  at::Tensor crystal_of;    // int64 [n]
  at::Tensor atom_begin;    // int64 [g + 1]: where the atoms of each crystal begin
};

}  // namespace oarlock
