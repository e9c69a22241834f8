/*
 * number.cc - std::from_chars and std::to_chars behind the C functions of number.h. They are exact,
 * write the shortest text and do not depend on the locale. This is the one C++ file. Nothing here
 * allocates or throws.
 */
#include "codec/json/number.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <string_view>

namespace {

/* Is a number huge that from_chars calls "out of range", and not tiny? Its first significant digit
 * then stands before the point once the exponent is applied. */
bool is_huge(std::string_view text) {
    const size_t end = std::min(text.find_first_of("eE"), text.size());
    const size_t point = std::min(text.find('.'), end), first = text.find_first_of("123456789");
    long exponent = 0;
    if (end < text.size()) {
        text.remove_prefix(end + 1 + (text[end + 1] == '+'));
        if (std::from_chars(text.begin(), text.end(), exponent).ec != std::errc()) {
            return text[0] != '-'; /* the exponent has more digits than any text */
        }
    }
    return exponent > long(first) - long(point); /* the two are far from equal */
}

template <typename T> bool read(const char *text, size_t size, T *out) {
    const char *end = text + size;
    T value = 0;
    bool fits = true;
    if (std::from_chars(text, end, value).ec == std::errc::result_out_of_range) {
        fits = !is_huge({text, size});
        value = fits ? T(0) : std::numeric_limits<T>::infinity();
        if (*text == '-') {
            value = -value;
        }
    }
    *out = value;
    return fits;
}

/* Compares the digits of a text with those of the double nearest to it. */
int side_of(std::string_view text, double value) {
    constexpr size_t DIGITS = 120; /* enough for all that lies halfway between two floats */
    char exact[DIGITS + 16];
    std::to_chars(exact, exact + sizeof exact, value < 0 ? -value : value,
                  std::chars_format::scientific, DIGITS - 1);
    exact[1] = exact[0]; /* in place of the point */
    std::string_view digits(exact + 1, DIGITS);
    bool leads = true;
    for (char c : text.substr(0, text.find_first_of("eE"))) {
        leads = leads && c < '1'; /* a sign, a zero or the point */
        if (leads || c == '.') {
            continue;
        }
        const int more = c - (digits.empty() ? '0' : digits.front());
        if (more != 0) { /* 9.99... beside 10.0 begins with a larger digit, but is less */
            return digits.size() == DIGITS && (more > 1 || more < -1) ? -more : more;
        }
        digits.remove_prefix(!digits.empty());
    }
    return digits.find_first_not_of('0') == digits.npos ? 0 : -1;
}

/* Reads "d.ddde-XX" as digits and a power. */
void parse_scientific(const char *text, const char *end, number_digits *out) {
    *out = {};
    for (; *text != 'e'; ++text) {
        if (*text != '.') {
            out->digits = out->digits * 10 + uint64_t(*text - '0');
            --out->power; /* the first digit stands before the point */
        }
    }
    int exponent = 0;
    std::from_chars(text + 1 + (text[1] == '+'), end, exponent);
    out->power += 1 + exponent;
}

template <typename T> void exact(T value, number_digits *out) {
    char text[NUMBER_SIZE];
    auto end = std::to_chars(text, text + sizeof text, value, std::chars_format::scientific).ptr;
    parse_scientific(text, end, out);
}

} // namespace

bool number_read_float(const char *text, size_t size, float *out) {
    return read(text, size, out);
}

bool number_read_double(const char *text, size_t size, double *out) {
    return read(text, size, out);
}

int number_side(const char *text, size_t size, double value) {
    return side_of({text, size}, value);
}

void number_exact_float(float value, number_digits *out) {
    exact(value, out);
}

void number_exact_double(double value, number_digits *out) {
    exact(value, out);
}

void number_exact_rounded(double value, int digits, number_digits *out) {
    char text[NUMBER_SIZE];
    auto end =
        std::to_chars(text, text + sizeof text, value, std::chars_format::scientific, digits - 1);
    parse_scientific(text, end.ptr, out);
}
