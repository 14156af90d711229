#pragma once

// Lists the kernels that launch() knows. They are grouped into families. A family is compiled in one file for
// GPUs, device_NAME.cu, and in one file for the simulated GPU, core/backend/cuda/simulator/host_NAME.cpp. The
// files take about equally long to compile. To add a kernel, add the struct of its arguments to a list. To
// add a family, add a list here, the two files, and an entry in SPECLAB_KERNELS.

#define SPECLAB_LAYER_KERNELS(apply)                                                               \
  apply(PackWeights) apply(Gather) apply(Norm) apply(Activate) apply(Elementwise) apply(RoundRows) \
      apply(RopeStore) apply(MoveSlots) apply(CopyKv) apply(AttentionSplits) apply(AttentionSum)   \
          apply(AttentionViewSplits) apply(AttentionViewSum) apply(CopyRows) apply(FillColumns)    \
              apply(UnpackWeights) apply(RoundPlain) apply(ReadAll) apply(MultiplyAll)
#define SPECLAB_LINEAR_KERNELS(apply) apply(Linear)
#define SPECLAB_LINEAR_FREE_KERNELS(apply) apply(LinearFree)
#define SPECLAB_SAMPLING_KERNELS(apply)                                                               \
  apply(Standardise) apply(LargestOfRows) apply(CutRows) apply(Sample) apply(Siblings) apply(LayRows) \
      apply(MoveAccepted) apply(Settle) apply(Stamp) apply(Continue)
#define SPECLAB_ACCEPT_KERNELS(apply) apply(Accept)
#define SPECLAB_ACCEPT_RULE_KERNELS(apply) \
  apply(AcceptPaths) apply(AcceptLongest) apply(AcceptKSeq) apply(AcceptMultiPath)

#define SPECLAB_KERNELS(apply)       \
  SPECLAB_LAYER_KERNELS(apply)       \
  SPECLAB_LINEAR_KERNELS(apply)      \
  SPECLAB_LINEAR_FREE_KERNELS(apply) \
  SPECLAB_SAMPLING_KERNELS(apply) SPECLAB_ACCEPT_KERNELS(apply) SPECLAB_ACCEPT_RULE_KERNELS(apply)

// The kernels that a persistent kernel can run as tasks (PersistentKernels and FusedKernels in
// core/backend/cuda/program/persistent_tasks.h). They are listed here so that a task can also be launched
// alone.

#define SPECLAB_LAYER_TASKS(apply)                                                                          \
  apply(NormKernel<NormOf::kRms>) apply(RopeStoreKernel) apply(AttentionSplitsKernel<Attention>)            \
      apply(AttentionSumKernel<Attention>) apply(GatherKernel) apply(RoundRowsKernel) apply(CopyRowsKernel) \
          apply(FillColumnsKernel) apply(ActivateKernel<Activation::kSilu>)                                 \
              apply(ElementwiseKernel<ElementwiseOf::kAdd>)                                                 \
                  apply(ElementwiseKernel<ElementwiseOf::kAddBias>)
#define SPECLAB_LINEAR_TASKS(apply)                                                                      \
  apply(LinearFewKernel<1, true>) apply(LinearFewKernel<1, false>) apply(LinearFewKernel<2, false>)      \
      apply(LinearFewKernel<1, true, Linear, Rotated>) apply(LinearFewKernel<1, false, Linear, Rotated>) \
          apply(LinearFewKernel<2, false, Linear, Rotated>)                                              \
              apply(LinearFewKernel<1, false, Linear, Combined>)
#define SPECLAB_SAMPLING_TASKS(apply)                                                   \
  apply(LayRowsKernel) apply(StandardiseKernel<false>) apply(SampleKernel<PhiloxCoins>) \
      apply(LargestOfRowsKernel) apply(StandardisePiecesKernel<false>) apply(RaceKernel)
