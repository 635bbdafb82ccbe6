// A value or an error. Our own because clang 14, which runs the fuzzers, has no std::expected.
#pragma once

#include <utility>
#include <variant>

namespace pgmqtt::base {

template <class E>
struct Failure {
    E error;
};

template <class E>
Failure<std::decay_t<E>> fail(E&& error) {
    return {std::forward<E>(error)};
}

struct Done {};

template <class T, class E>
class [[nodiscard]] Result {
   public:
    Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
    template <class F>
    Result(Failure<F> failure) : state_(std::in_place_index<1>, std::move(failure.error)) {}

    bool ok() const { return state_.index() == 0; }
    explicit operator bool() const { return ok(); }

    T& value() { return std::get<0>(state_); }
    const T& value() const { return std::get<0>(state_); }
    T& operator*() { return value(); }
    const T& operator*() const { return value(); }
    T* operator->() { return &value(); }
    const T* operator->() const { return &value(); }

    E& error() { return std::get<1>(state_); }
    const E& error() const { return std::get<1>(state_); }

   private:
    std::variant<T, E> state_;
};

// Success carries nothing.
template <class E>
using Status = Result<Done, E>;

}  // namespace pgmqtt::base
