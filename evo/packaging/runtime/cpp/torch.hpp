// A kernel's binding to torch: a function of Python, and one that torch's dispatcher calls. Both hand to Python all that
// the kernel does not take as it is, so that messages, copies and gradients have one home.
// Apache-2.0, see LICENSE. Everything is local to the file that includes it, so that several kernels fit in a program.
#pragma once
#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/library.h>

#include <array>
#include <memory>
#include <stdexcept>
#include <string>

namespace {
namespace evo_torch {

// Whether the kernel takes a tensor as it is: dense, where the first one lies, and no wrapper, conjugate view or the like,
// which have keys besides the usual ones.
inline bool fits(const at::Tensor& tensor, at::ScalarType type, int64_t axes, const at::Tensor& first, c10::DispatchKeySet usual) {
    return (tensor.key_set() | usual) == usual && tensor.scalar_type() == type && tensor.dim() == axes &&
           tensor.get_device() == first.get_device() && tensor.is_contiguous();
}

// Whether no mode, transform or trace is at work in this thread, so that torch would but hand a call on.
inline bool is_direct() {
    constexpr c10::DispatchKeySet usual({c10::DispatchKey::BackendSelect, c10::DispatchKey::ADInplaceOrView});
    const c10::DispatchKeySet included = c10::impl::tls_local_dispatch_key_set().included_;
    return (included | usual) == usual && !at::impl::torch_function_mode_enabled();
}

// Computes the outputs; false where the arguments are not what the kernel takes, of which Python will say more.
template <class Binding>
bool computed(const at::Tensor* const* inputs, const int64_t* dims, at::Tensor* outputs) {
    try {
        return Binding::compute(inputs, dims, outputs);
    } catch (const std::invalid_argument&) {
        return false;
    }
}

// Reads the sizes that are said by name, in the order of Binding::DIMS; false where others are said, or not all.
template <class Binding>
bool read_dims(PyObject* const* values, PyObject* names, int64_t* dims) {
    const Py_ssize_t count = names ? PyTuple_GET_SIZE(names) : 0;
    if (count != static_cast<Py_ssize_t>(Binding::DIMS.size())) return false;
    for (Py_ssize_t i = 0; i < count; ++i) {
        if (PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, i), Binding::DIMS[i]) != 0) return false;
        if (!PyLong_CheckExact(values[i])) return false;
        int overflow = 0;
        dims[i] = PyLong_AsLongLongAndOverflow(values[i], &overflow);
        if (overflow != 0) return false;
    }
    return true;
}

// Returns what the kernel makes of tensors: nothing, a tensor, or a tuple of them; or NotImplemented.
template <class Binding>
PyObject* call(PyObject*, PyObject* const* given, Py_ssize_t count, PyObject* names) {
    HANDLE_TH_ERRORS
    constexpr std::size_t INPUTS = Binding::INPUTS, OUTPUTS = Binding::OUTPUTS;
    const at::Tensor* inputs[INPUTS];
    std::array<at::Tensor, OUTPUTS> outputs;
    int64_t dims[Binding::DIMS.size() + 1];
    if (count != static_cast<Py_ssize_t>(INPUTS) || !is_direct()) Py_RETURN_NOTIMPLEMENTED;
    if (!read_dims<Binding>(given + count, names, dims)) Py_RETURN_NOTIMPLEMENTED;
    const bool keeps_gradients = c10::GradMode::is_enabled();
    for (std::size_t i = 0; i < INPUTS; ++i) {
        if (!THPVariable_CheckExact(given[i])) Py_RETURN_NOTIMPLEMENTED;
        inputs[i] = &THPVariable_Unpack(given[i]);
        if ((keeps_gradients && inputs[i]->requires_grad()) || inputs[i]->_fw_grad(0).defined()) Py_RETURN_NOTIMPLEMENTED;
    }
    bool done = false;
    {
        pybind11::gil_scoped_release others_may_run;
        done = computed<Binding>(inputs, dims, outputs.data());
    }
    if (!done) Py_RETURN_NOTIMPLEMENTED;
    if constexpr (OUTPUTS == 0) Py_RETURN_NONE;
    if constexpr (OUTPUTS == 1) return THPVariable_Wrap(std::move(outputs[0]));
    PyObject* made = PyTuple_New(OUTPUTS);
    for (std::size_t i = 0; i < OUTPUTS; ++i) PyTuple_SET_ITEM(made, i, THPVariable_Wrap(std::move(outputs[i])));
    return made;
    END_HANDLE_TH_ERRORS
}

// The function of Python that the dispatcher's calls go to where `compute` does not take them.
inline PyObject*& python() {
    static PyObject* function = nullptr;
    return function;
}

template <class Binding>
void in_python(torch::jit::Stack& stack) {
    pybind11::gil_scoped_acquire python_runs;
    const auto arguments = torch::jit::last(stack, Binding::INPUTS + Binding::DIMS.size());
    pybind11::tuple inputs(Binding::INPUTS);
    pybind11::dict dims;
    for (std::size_t i = 0; i < Binding::INPUTS; ++i) {
        inputs[i] = pybind11::reinterpret_steal<pybind11::object>(THPVariable_Wrap(arguments[i].toTensor()));
    }
    for (std::size_t i = 0; i < Binding::DIMS.size(); ++i) dims[Binding::DIMS[i]] = arguments[Binding::INPUTS + i].toInt();
    const auto found = pybind11::reinterpret_steal<pybind11::object>(PyObject_Call(python(), inputs.ptr(), dims.ptr()));
    if (!found) {
        python_error error;
        error.persist();
        throw std::move(error);
    }
    torch::jit::drop(stack, Binding::INPUTS + Binding::DIMS.size());
    for (std::size_t i = 0; i < Binding::OUTPUTS; ++i) {
        PyObject* each = Binding::OUTPUTS == 1 ? found.ptr() : PyTuple_GET_ITEM(found.ptr(), i);
        torch::jit::push(stack, THPVariable_Unpack(each));
    }
}

template <class Binding>
void boxed(const c10::OperatorHandle&, torch::jit::Stack* stack) {
    constexpr std::size_t INPUTS = Binding::INPUTS, DIMS = Binding::DIMS.size();
    const auto arguments = torch::jit::last(*stack, INPUTS + DIMS);
    const at::Tensor* inputs[INPUTS];
    std::array<at::Tensor, Binding::OUTPUTS> outputs;
    int64_t dims[DIMS + 1];
    for (std::size_t i = 0; i < INPUTS; ++i) inputs[i] = &arguments[i].toTensor();
    for (std::size_t i = 0; i < DIMS; ++i) dims[i] = arguments[INPUTS + i].toInt();
    if (!computed<Binding>(inputs, dims, outputs.data())) return in_python<Binding>(*stack);
    torch::jit::drop(*stack, INPUTS + DIMS);
    for (at::Tensor& output : outputs) torch::jit::push(*stack, std::move(output));
}

// Has torch's dispatcher call the kernel for an operator at this key, for as long as the process lives.
template <class Binding>
void serve(const std::string& space, const std::string& name, const std::string& key, pybind11::object function) {
    static std::unique_ptr<torch::Library> library;
    python() = function.release().ptr();
    library = std::make_unique<torch::Library>(torch::Library::IMPL, space, c10::parseDispatchKey(key), __FILE__, __LINE__);
    library->impl(name.c_str(), torch::CppFunction::makeFromBoxedFunction<&boxed<Binding>>());
}

template <class Binding>
void define(pybind11::module_& module) {
    static PyMethodDef methods[] = {
        {"call", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(&call<Binding>)), METH_FASTCALL | METH_KEYWORDS, nullptr},
        {nullptr, nullptr, 0, nullptr},
    };
    PyModule_AddFunctions(module.ptr(), methods);
    module.def("add", &Binding::add);
    module.def("serve", &serve<Binding>);
}

}  // namespace evo_torch
}  // namespace
