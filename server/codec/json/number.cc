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

enum {
    DIGITS_COPIED = 17 /* copies have one size, so that none depends on the number of digits */
};

/* Writes a number that to_chars has made, "-d.ddde+XX", as the answers have it: without zeros at
 * its end, and with an exponent only if that of the first digit is below -4 or there would be more
 * than six zeros before the point. DIGITS_COPIED bytes behind the text may be read. */
size_t lay_out(char *out, char *text, const char *end) {
    const bool negative = *text == '-';
    *out = '-';
    text += negative;
    const char *const e = std::find<const char *>(text, end, 'e');
    int exponent = 0; /* of the first digit */
    std::from_chars(e + 1 + (e[1] == '+'), end, exponent);
    int count = e - text > 1 ? int(e - text) - 1 : 1;
    text[1] = text[0]; /* in place of the point */
    const char *const digits = text + 1;
    while (count > 1 && digits[count - 1] == '0') {
        count--;
    }
    char *const first = out + negative;
    const auto size = [out](char *last) { return size_t(last - out); };
    if (exponent < -4 || exponent - count + 1 > 6) {
        first[0] = digits[0];
        first[1] = '.';
        std::copy_n(digits + 1, DIGITS_COPIED, first + 2);
        char *last = first + (count > 1 ? count + 1 : 1);
        *last++ = 'e';
        return size(std::to_chars(last, last + 4, exponent).ptr);
    }
    if (exponent < 0) {
        std::copy_n("0.000", 5, first);
        std::copy_n(digits, DIGITS_COPIED, first + 1 - exponent);
        return size(first + 1 - exponent + count);
    }
    std::copy_n(digits, DIGITS_COPIED, first);
    if (exponent >= count - 1) {
        std::fill_n(first + count, 6, '0');
        return size(first + exponent + 1);
    }
    first[exponent + 1] = '.';
    std::copy_n(digits + exponent + 1, DIGITS_COPIED, first + exponent + 2);
    return size(first + count + 1);
}

template <typename T> size_t write_shortest(char *out, T value) {
    char text[NUMBER_SIZE + DIGITS_COPIED];
    const auto made = std::to_chars(text, text + NUMBER_SIZE, value, std::chars_format::scientific);
    return lay_out(out, text, made.ptr);
}

} // namespace

bool number_read_double(const char *text, size_t size, double *out) {
    const char *const end = text + size;
    bool fits = true;
    *out = 0;
    if (std::from_chars(text, end, *out).ec == std::errc::result_out_of_range) {
        fits = !is_huge({text, size});
        *out = fits ? 0 : std::numeric_limits<double>::infinity();
        if (*text == '-') {
            *out = -*out;
        }
    }
    return fits;
}

int number_side(const char *text, size_t size, double value) {
    return side_of({text, size}, value);
}

size_t number_write_float(char *out, float value) {
    return write_shortest(out, value);
}

size_t number_write_double(char *out, double value) {
    return write_shortest(out, value);
}

size_t number_write_rounded(char *out, double value, int digits) {
    static const char largest[] = "1.7976931348623157"; /* the digits of the largest double */
    char text[NUMBER_SIZE + DIGITS_COPIED];
    const char *const end =
        std::to_chars(text, text + NUMBER_SIZE, value, std::chars_format::scientific, digits - 1)
            .ptr;
    double rounded;
    if ((value > 1e308 || value < -1e308) &&
        std::from_chars(text, end, rounded).ec == std::errc::result_out_of_range) {
        std::copy_n(largest, digits > 1 ? digits + 1 : 1, text + (value < 0));
    }
    return lay_out(out, text, end);
}

size_t number_write_int64(char *out, int64_t value) {
    return size_t(std::to_chars(out, out + NUMBER_SIZE, value).ptr - out);
}
