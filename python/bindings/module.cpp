#include <exception>

#include "core/base/error.h"
#include "python/bindings/bindings.h"

namespace nb = nanobind;

namespace {

/// Raises the Python class in `error_class` for an Error of C++, with the parts of its text.
void raise_error(const std::exception_ptr& thrown, void* error_class) {
  try {
    std::rethrow_exception(thrown);
  } catch (const speclab::Error& error) {
    const nb::handle cls(static_cast<PyObject*>(error_class));
    const speclab::Error::Text& text = error.text();
    const nb::object raised = cls(error.what(), text.what, text.got, text.expected, text.advice);
    PyErr_SetObject(cls.ptr(), raised.ptr());
  }
}

}  // namespace

NB_MODULE(theory, module) {
  module.doc() =
      R"(Closed forms and estimators of speculative decoding: the C++ library core/theory.

p is the target, q the draft. gamma is the number of drafted tokens per step, alpha the probability that a tested token is accepted.
tau is the number of tokens emitted per target forward, with the bonus or correction token: 1 <= tau <= gamma + 1.
c is the time of a draft forward / the time of a target forward, one row each. t(n) is the time of a target forward of n rows / of one row.

A number outside its domain raises speclab.Error, which is a ValueError. A function that has no answer for its input returns None.
Equations of "Leviathan et al." are those of Leviathan, Kalman, Matias 2023, "Fast Inference from Transformers via Speculative Decoding".)";
  // The module keeps the class for as long as the interpreter runs.
  nb::object error_class = nb::module_::import_("speclab.errors").attr("Error");
  nb::register_exception_translator(raise_error, error_class.release().ptr());
  speclab::python::bind_chain(module);
  speclab::python::bind_costs(module);
  speclab::python::bind_decoder(module);
  speclab::python::bind_rows(module);
  speclab::python::bind_shapes(module);
  speclab::python::bind_rounds(module);
  speclab::python::bind_estimators(module);
  speclab::python::bind_processes(module);
  speclab::python::bind_predictions(module);
}
