// The sub-layers of a decoder layer over the op table: normed input x [m, d] to output y [m, d].
#pragma once

#include "model/cache_layout.h"
#include "model/launcher.h"
#include "model/observer.h"
#include "model/weights.h"

namespace baton::model {

// Choices that hold for a whole model instance.
struct Numerics {
  DType activation = DType::kF32;                            // activations and their arithmetic: kF32 exact, kBF16 as the GPU computes
  ops::ActivationQuant quant = ops::ActivationQuant::kNone;  // inputs of FP8 matrices
  bool chunked_kda = false;
  bool expanded_attention = false;
};

// Everything that the rows of one launch share. Pointers are the backend's.
struct LaunchRows {
  ops::BatchView batch;
  ops::PagePoolView pages;
  ops::SlotPoolView slots;
  Observer* observer = nullptr;
};

void run_kda(Launcher& launcher, const Config& config, const Numerics& numerics, const KdaLayerWeights& w, const ops::KdaSlotLayout& layout,
             const LaunchRows& rows, ConstMatrixView x, MatrixView y);

// reuse: attend to this selection instead of running the indexer's choice; keys and pools are written all the same.
void run_sparse(Launcher& launcher, const Config& config, const Numerics& numerics, const SparseLayerWeights& w,
                const ops::LatentLayout& latent, const ops::IndexerLayout& index, const LaunchRows& rows, int64_t layer, ConstMatrixView x,
                MatrixView y, const ops::Selection* reuse, ops::Selection* chosen);

void run_mlp(Launcher& launcher, const Config& config, const Numerics& numerics, const MlpWeights& w, ConstMatrixView x, MatrixView y);

void run_moe(Launcher& launcher, const Config& config, const Numerics& numerics, const MoeWeights& w, Observer* observer, int64_t layer,
             ConstMatrixView x, MatrixView y);

// Device arrays of a selection for m rows of sequences of at most max_pages pages.
ops::Selection allocate_selection(Arena& arena, const Config& config, int64_t rows, int64_t max_pages);

}  // namespace baton::model
