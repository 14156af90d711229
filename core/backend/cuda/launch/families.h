#pragma once

// The kernels that launch() knows, by the files in which they are compiled: device_NAME.cu for GPUs and
// core/backend/cuda/simulator/host_NAME.cpp for the simulated one. The files take about equally long to
// compile. A new kernel is one word here: the struct of its arguments. A new family is a list here, one file
// of each kind, and an entry in SPECLAB_KERNELS.

#define SPECLAB_LAYER_KERNELS(apply)                                                               \
  apply(PackWeights) apply(Gather) apply(Norm) apply(Activate) apply(Elementwise) apply(RoundRows) \
      apply(RopeStore) apply(MoveSlots) apply(CopyKv) apply(AttentionSplits) apply(AttentionSum)   \
          apply(AttentionViewSplits) apply(AttentionViewSum) apply(CopyRows) apply(FillColumns)    \
              apply(UnpackWeights) apply(RoundPlain) apply(ReadAll) apply(MultiplyAll)
#define SPECLAB_LINEAR_KERNELS(apply) apply(Linear)
#define SPECLAB_LINEAR_FREE_KERNELS(apply) apply(LinearFree)
#define SPECLAB_SAMPLING_KERNELS(apply)                                                             \
  apply(Standardise) apply(Sample) apply(Siblings) apply(LayRows) apply(MoveAccepted) apply(Settle) \
      apply(Stamp) apply(Continue)
#define SPECLAB_ACCEPT_KERNELS(apply) apply(Accept)

#define SPECLAB_KERNELS(apply)  \
  SPECLAB_LAYER_KERNELS(apply)  \
  SPECLAB_LINEAR_KERNELS(apply) \
  SPECLAB_LINEAR_FREE_KERNELS(apply) SPECLAB_SAMPLING_KERNELS(apply) SPECLAB_ACCEPT_KERNELS(apply)

// Those that a persistent kernel can run as tasks (PersistentKernels in
// core/backend/cuda/program/persistent_tasks.h), so that a task can also be launched alone.

#define SPECLAB_LAYER_TASKS(apply)                                                                          \
  apply(NormKernel<NormOf::kRms>) apply(RopeStoreKernel) apply(AttentionSplitsKernel<Attention>)            \
      apply(AttentionSumKernel<Attention>) apply(GatherKernel) apply(RoundRowsKernel) apply(CopyRowsKernel) \
          apply(FillColumnsKernel) apply(ActivateKernel<Activation::kSilu>)                                 \
              apply(ElementwiseKernel<ElementwiseOf::kAdd>)                                                 \
                  apply(ElementwiseKernel<ElementwiseOf::kAddBias>)
#define SPECLAB_LINEAR_TASKS(apply) \
  apply(LinearFewKernel<1, 6, true>) apply(LinearFewKernel<1, 6, false>) apply(LinearFewKernel<2, 4, false>)
#define SPECLAB_SAMPLING_TASKS(apply) \
  apply(LayRowsKernel) apply(StandardiseKernel<false>) apply(SampleKernel<PhiloxCoins>)
