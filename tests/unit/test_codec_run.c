/* test_codec_run.c - the loops that read runs of numbers: without vectors, and with vectors if this
 * CPU has them. Their values must equal those of strtof and strtod. */
#include "codec/json/decimal.h"
#include "number_texts.h"
#include "support/scale.h"

typedef const char *(*run_reader)(struct codec_tensor *, const char *, const char *, size_t *,
                                  bool *);

static size_t list_readers(run_reader readers[2]) {
    size_t count = 0;
    readers[count++] = decimal_add_run;
#ifdef DECIMAL_VECTOR
    if (vector_has_digits())
        readers[count++] = decimal_add_run_vector;
#endif
    return count;
}

/* Returns whether a number lies halfway between two halves, if these have no largest exponent. */
static bool lies_between_halves(double number) {
    int exponent;
    const double fraction = frexp(fabs(number), &exponent); /* from 1/2 to 1 */
    return fmod(ldexp(fraction, exponent < -13 ? exponent + 25 : 12), 2) == 1;
}

/* Reads the texts with one loop and compares what it stores with the C library. What it stores is
 * rounded as the text is, to float and to half. A number at which the loop stops is left out.
 * Returns how many it stored. */
static size_t compare_run(run_reader reader, char texts[BATCH][TEXT], const char *gap) {
    static char list[BATCH * (TEXT + 2) + 100];
    static double numbers[BATCH];
    char *out = list;
    for (size_t i = 0; i < BATCH; i++)
        out += sprintf(out, "%s%s", texts[i], i + 1 < BATCH ? gap : "]");
    memset(out, ' ', 100);

    const char *text = list;
    size_t stored = 0;
    for (size_t next = 0; next < BATCH; next++) {
        struct codec_tensor tensor = {
            .data = numbers, .dtype = ATTN_FLOAT64, .capacity = BATCH - next};
        size_t added;
        bool after;
        const char *stop = reader(&tensor, text, out + 100, &added, &after);
        for (size_t i = 0; i < added; i++, next++) {
            const double wide = strtod(texts[next], NULL);
            cr_assert(memcmp(&numbers[i], &wide, sizeof wide) == 0, "%s: %a, not %a", texts[next],
                      numbers[i], wide);
            cr_assert((float)wide == strtof(texts[next], NULL), "%s", texts[next]);
            cr_assert(!lies_between_halves(wide) || strtold(texts[next], NULL) == (long double)wide,
                      "%s", texts[next]);
            text += strlen(texts[next]) + strlen(gap);
        }
        stored += added;
        if (added > 0 && next == BATCH) {
            cr_assert(after && *stop == ']');
        } else if (!after) {
            cr_assert_eq(stop, text, "it stopped at %.20s, not at %.20s", stop, text);
        }
        if (next < BATCH)
            text += strlen(texts[next]) + strlen(gap);
    }
    return stored;
}

/* Every loop stores what the C library reads, whatever the kind of the texts. It stores nearly all
 * numbers of the usual kinds. */
Test(codec_run, loops_equal_strtof_and_strtod) {
    static char texts[BATCH][TEXT];
    run_reader readers[2];
    const size_t count = list_readers(readers);
    for (size_t round = 0; round < test_scale(110); round++) {
        for (size_t i = 0; i < BATCH; i++)
            make_number_text(texts[i], round % KINDS);
        for (size_t r = 0; r < count; r++) {
            const char *gap = round / KINDS % 2 == 0 ? "," : ", ";
            const size_t stored = compare_run(readers[r], texts, gap);
            cr_assert(round % KINDS != 1 || stored > BATCH * 9 / 10);
        }
    }
}

/* Texts of every length around the widths of the vectors, with the point at every place. */
Test(codec_run, loops_read_every_length) {
    static char texts[BATCH][TEXT];
    run_reader readers[2];
    const size_t count = list_readers(readers);
    for (size_t before = 1; before <= 20; before++) {
        for (size_t after = 0; after <= 26; after++) {
            for (size_t i = 0; i < BATCH; i++) {
                char *out = texts[i];
                out += sprintf(out, "%s", i % 2 == 0 ? "-" : "");
                for (size_t d = 0; d < before; d++)
                    *out++ =
                        (char)(before == 1 ? '0' + random_bits() % 10 : '1' + random_bits() % 9);
                *out = '.';
                out += after > 0;
                const size_t zeros = after > 0 ? random_bits() % after : 0;
                for (size_t d = 0; d < after; d++)
                    *out++ = (char)(d < zeros ? '0' : '0' + random_bits() % 10);
                *out = '\0';
            }
            for (size_t r = 0; r < count; r++) {
                const size_t stored = compare_run(readers[r], texts, before % 2 == 0 ? "," : ", ");
                if (before <= 4 && after <= 13)
                    cr_assert_gt(stored, BATCH * 9 / 10, "%zu digits, %zu after the point", before,
                                 after);
            }
        }
    }
}

/* A loop stops at the beginning of what is no number. */
Test(codec_run, loops_stop_at_wrong_numbers) {
    static const char *const wrong[] = {
        "01",   "-01",   "00.5",  "-00",     "1.",          "-1.",       "-",     "-.5",
        ".5",   "+1",    "1.e5",  "1e",      "1e+",         "--1",       "1.5.5", "1..5",
        "0x10", "1-2",   "1.2-3", "1.5e3.2", "1f",          "1.25f",     "1e5e5", "null",
        "NaN",  "\"1\"", "[1",    "1.5-",    "1.5\xFF\xFF", "-Infinity",
    };
    run_reader readers[2];
    const size_t count = list_readers(readers);
    for (size_t w = 0; w < COUNT(wrong); w++) {
        for (size_t before = 0; before < 9; before++) { /* each place in the 64 characters */
            char text[400];
            char *out = text;
            for (size_t i = 0; i < before; i++)
                out += sprintf(out, "%s", i % 3 == 0 ? "-0.12345678, " : "7.5, ");
            const size_t place = (size_t)(out - text);
            sprintf(out, "%s, 1.5, 2.5 %0120d", wrong[w], 0);
            for (size_t r = 0; r < count; r++) {
                double numbers[20];
                struct codec_tensor tensor = {
                    .data = numbers, .dtype = ATTN_FLOAT64, .capacity = 20};
                size_t added;
                bool after;
                const char *stop = readers[r](&tensor, text, text + strlen(text), &added, &after);
                cr_assert_eq(added, before, "%s", text);
                cr_assert_eq(stop, text + place, "%s", text);
                cr_assert_not(after);
            }
        }
    }
}

/* A loop stores no more numbers than there is room for. */
Test(codec_run, loops_stop_when_the_buffer_is_full) {
    char text[400];
    run_reader readers[2];
    const size_t count = list_readers(readers);
    sprintf(text, "1, 2.5, -3, 4.25,5,6 , %0120d", 0);
    for (size_t r = 0; r < count; r++) {
        for (size_t room = 0; room <= 6; room++) {
            double numbers[7] = {0};
            struct codec_tensor tensor = {.data = numbers, .dtype = ATTN_FLOAT64, .capacity = room};
            size_t added;
            bool after;
            readers[r](&tensor, text, text + strlen(text), &added, &after);
            cr_assert_eq(added, room);
            cr_assert_eq(after, room == 6);
            cr_assert_eq(numbers[room], 0);
        }
    }
}
