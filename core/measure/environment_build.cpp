#include "core/measure/environment.h"
#include "speclab_version.h"  // written by scripts/version.cmake at every build

namespace speclab {

const BuildInfo& build_info() {
  static const BuildInfo info = [] {
    BuildInfo build;
    build.version = SPECLAB_VERSION;
    build.commit = SPECLAB_COMMIT;
    build.dirty = SPECLAB_DIRTY;
    build.gpu_record = SPECLAB_GPU_RECORD;
    build.build_type = SPECLAB_BUILD_TYPE;
    build.compiler = std::string("gcc ") + __VERSION__;
#if !defined(__OPTIMIZE__) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    build.optimised = false;
#endif
    return build;
  }();
  return info;
}

}  // namespace speclab
