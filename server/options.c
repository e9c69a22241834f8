/*
 * options.c - the table of options, which says everything about an option except its default, and
 * the reading of options. The defaults are one literal. A new option needs a member of struct
 * server_options, a default and a row. The library reads the variable ATTENTION_ISA itself; this
 * file only refuses a value that the CPU cannot run.
 */
#define _GNU_SOURCE /* environ */
#include "options.h"

#include "attention.h"
#include "codec/nearest.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <regex.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum kind {
    KIND_ADDRESS,
    KIND_ORIGINS, /* a list with commas; "*" is allowed if `range` begins with it */
    KIND_TEXT,    /* a text that is not empty */
    KIND_CHOICE,  /* one of the two words in `range` */
    KIND_UNSIGNED,
    KIND_SECONDS, /* whole seconds */
    KIND_BYTES,
    KIND_REAL,
    KIND_SWITCH,
    KIND_HELP,
    KIND_VERSION
};

struct option {
    const char *flag;
    const char *variable; /* the environment variable; NULL if there is only a flag */
    enum kind kind;
    size_t offset;           /* the place of the value in struct server_options */
    double minimum, maximum; /* whole numbers up to 2^53 are exact */
    const char *range;       /* the same in words, or the words of a choice */
    const char *help;
};

#define AT(member) offsetof(struct server_options, member)
#define KIB        1024.0
#define GIB        (1024.0 * 1024.0 * 1024.0)

static const struct option table[] = {
    {"--address", "ATTENTIOND_ADDRESS", KIND_ADDRESS, AT(http.address), 0, 0,
     "an IPv4 or IPv6 address", "the address to listen on; 0.0.0.0 and :: are all addresses"},
    {"--port", "ATTENTIOND_PORT", KIND_UNSIGNED, AT(http.port), 0, 65535, "0..65535",
     "the port to listen on; 0 takes a free port, and the first line of output names it"},
    {"--api-key-file", "ATTENTIOND_API_KEY_FILE", KIND_TEXT, AT(http.api_key_file), 0, 0, "a path",
     "file of API keys, one on each line; /health, the pages and /openapi.yaml need none"},
    {"--tls-certificate", "ATTENTIOND_TLS_CERTIFICATE", KIND_TEXT, AT(http.tls_certificate), 0, 0,
     "a path", "file of the certificate and its chain (PEM); the port then speaks TLS only"},
    {"--tls-key", "ATTENTIOND_TLS_KEY", KIND_TEXT, AT(http.tls_key), 0, 0, "a path",
     "file of the certificate's key (PEM), without a password"},
    {"--cors-origins", "ATTENTIOND_CORS_ORIGINS", KIND_ORIGINS, AT(http.cors_origins), 0,
     OPTIONS_ORIGINS, "* or origins with commas between, at most 4096 bytes",
     "origins whose web pages may send requests; * is every origin"},
    {"--frame-ancestors", "ATTENTIOND_FRAME_ANCESTORS", KIND_ORIGINS, AT(frame_ancestors), 0,
     OPTIONS_ORIGINS, "origins with commas between, none with * or [, at most 4096 bytes",
     "origins whose web pages may show the pages of the daemon in a frame"},
    {"--io-threads", "ATTENTIOND_IO_THREADS", KIND_UNSIGNED, AT(http.threads), 1, 64, "1..64",
     "threads that serve connections; the default is one for each core, at most 4"},
    {"--workers", "ATTENTIOND_WORKERS", KIND_UNSIGNED, AT(jobs.threads), 1, 64, "1..64",
     "threads that compute; the default is one for each core"},
    {"--max-body", "ATTENTIOND_MAX_BODY", KIND_BYTES, AT(http.max_body), 1 * KIB, 64 * GIB,
     "1KiB..64GiB", "bytes that the body of a request may have"},
    {"--compression", "ATTENTIOND_COMPRESSION", KIND_CHOICE, AT(http.compression), 0, 0, "no|yes",
     "yes: requests and answers may be compressed with gzip, zstd or deflate"},
    {"--max-connections", "ATTENTIOND_MAX_CONNECTIONS", KIND_UNSIGNED, AT(http.max_connections), 1,
     1e6, "1..1000000", "connections that may be open; further ones are closed at once"},
    {"--idle-timeout", "ATTENTIOND_IDLE_TIMEOUT", KIND_SECONDS, AT(http.idle_timeout), 1, 86400,
     "1..86400", "seconds without a byte after which a connection is closed"},
    {"--header-timeout", "ATTENTIOND_HEADER_TIMEOUT", KIND_SECONDS, AT(http.header_timeout), 1,
     86400, "1..86400", "seconds that the headers of a request may take"},
    {"--body-timeout", "ATTENTIOND_BODY_TIMEOUT", KIND_SECONDS, AT(http.body_timeout), 1, 86400,
     "1..86400", "seconds that a body may take; each 64 KiB adds one second"},
    {"--write-timeout", "ATTENTIOND_WRITE_TIMEOUT", KIND_SECONDS, AT(http.write_timeout), 1, 86400,
     "1..86400", "seconds that a client may take to read an answer; each 64 KiB adds one second"},
    {"--compute-timeout", "ATTENTIOND_COMPUTE_TIMEOUT", KIND_REAL, AT(compute_timeout), 0.001,
     86400, "0.001..86400", "seconds that a request may wait and be computed; then it gets a 503"},
    {"--drain-delay", "ATTENTIOND_DRAIN_DELAY", KIND_SECONDS, AT(http.drain_delay), 0, 3600,
     "0..3600",
     "seconds after SIGTERM in which connections are accepted, while /health/ready is 503"},
    {"--drain-timeout", "ATTENTIOND_DRAIN_TIMEOUT", KIND_SECONDS, AT(http.drain_timeout), 0, 3600,
     "0..3600", "seconds that open requests then may still take"},
    {"--max-memory", "ATTENTIOND_MAX_MEMORY", KIND_BYTES, AT(max_memory), 64 * KIB, 1024 * GIB,
     "64KiB..1024GiB", "bytes that one request may hold in matrices, results and answer"},
    {"--max-work", "ATTENTIOND_MAX_WORK", KIND_REAL, AT(max_work), 1, 1e18, "1..1e18",
     "multiply-adds that one request may take"},
    {"--total-memory", "ATTENTIOND_TOTAL_MEMORY", KIND_BYTES, AT(total_memory), 1024 * KIB,
     1024 * GIB, "1MiB..1024GiB",
     "bytes that all requests together may hold; in a container half of its memory"},
    {"--max-queue", "ATTENTIOND_MAX_QUEUE", KIND_REAL, AT(jobs.max_cost), 1, 1e18, "1..1e18",
     "multiply-adds of all requests that wait or are computed; further requests get a 503"},
    {"--layers", "ATTENTIOND_LAYERS", KIND_TEXT, AT(layers.folder), 0, 0, "a path",
     "folder of safetensors files, whose attention weights are served under /layers"},
    {"--layers-memory", "ATTENTIOND_LAYERS_MEMORY", KIND_BYTES, AT(layers.memory), 1024 * KIB,
     1024 * GIB, "1MiB..1024GiB",
     "bytes that the packed weights of layers may take; those unused for longest are freed"},
    {"--log-format", "ATTENTIOND_LOG_FORMAT", KIND_CHOICE, AT(http.log.json), 0, 0, "text|json",
     "the form of the lines of the log"},
    {"--log-requests", "ATTENTIOND_LOG_REQUESTS", KIND_CHOICE, AT(http.log.requests), 0, 0,
     "no|yes", "yes: the log has a line for each request, at most 1000 in a second"},
    {"--log-file", "ATTENTIOND_LOG_FILE", KIND_TEXT, AT(http.log.file), 0, 0, "a path",
     "file for the log instead of standard error"},
    {"--health-check", NULL, KIND_SWITCH, AT(health_check), 0, 0, NULL,
     "ask the daemon at this address and port whether it is alive; status 0 means that it is"},
    {"--help", NULL, KIND_HELP, 0, 0, 0, NULL, "print this text; so does -h"},
    {"--version", NULL, KIND_VERSION, 0, 0, 0, NULL, "print the version"},
};
enum {
    OPTION_COUNT = sizeof table / sizeof *table
};

/* Returns a thread for each core, or for each that a part of is allowed. */
static unsigned threads_for(double cores, unsigned most) {
    return cores >= most ? most : (unsigned)ceil(cores);
}

/* Without limits of memory, requests may hold 2 GiB. The other budgets suit that. */
static struct server_options defaults(void) {
    return (struct server_options){
        .http = {.address = "127.0.0.1",
                 .port = 8080,
                 .threads = 1,
                 .max_body = (size_t)64 << 20,
                 .max_connections = 1000,
                 .idle_timeout = 30,
                 .header_timeout = 15,
                 .body_timeout = 30,
                 .write_timeout = 30,
                 .drain_timeout = 5},
        .jobs = {.threads = 1, .max_cost = 4e12},
        .layers = {.memory = (size_t)1 << 30},
        .compute_timeout = 60,
        .max_memory = (size_t)512 << 20,
        .total_memory = (size_t)2 << 30,
        .max_work = 1e12,
    };
}

void options_fit(struct server_options *options) {
    const struct process_limits *limits = &options->container;
    enum {
        STEP = 1 << 20 /* budgets are whole MiB */
    };
    options->http.threads = threads_for(limits->cores, 4);
    options->jobs.threads = threads_for(limits->cores, 64);
    if (limits->memory == 0) {
        return;
    }
    const size_t half = (size_t)(limits->memory / 2) / STEP * STEP;
    options->total_memory = half < STEP ? STEP : half;
    if (options->max_memory > options->total_memory / 4) {
        options->max_memory = options->total_memory / 4;
    }
    if (options->layers.memory > options->total_memory / 2) {
        options->layers.memory = options->total_memory / 2;
    }
}

/* -------------------------------------------------------------------------------------- values */

static bool is_address(const char *text) {
    struct in6_addr unused; /* has room for both kinds of addresses */
    return inet_pton(AF_INET, text, &unused) == 1 || inet_pton(AF_INET6, text, &unused) == 1;
}

/* Returns whether a text is a list of origins in the form that browsers send. An option that does
 * not take "*" puts its list into a Content-Security-Policy, where no IPv6 address can stand. */
static bool are_origins(const struct option *option, const char *text) {
#define ORIGIN "[a-z][a-z0-9+.-]*://([a-z0-9-]+(\\.[a-z0-9-]+)*|\\[[0-9a-f:.]+])(:[0-9]{1,5})?"
    regex_t list;
    if ((double)strlen(text) > option->maximum ||
        (option->range[0] != '*' && strpbrk(text, "*["))) {
        return false;
    }
    if (regcomp(&list, "^(\\*|" ORIGIN "(," ORIGIN ")*)$", REG_EXTENDED | REG_NOSUB) != 0) {
        return false; /* no memory */
    }
    const bool valid = regexec(&list, text, 0, NULL, 0) == 0;
    regfree(&list);
    return valid;
#undef ORIGIN
}

/* Reads a number that has no sign and no space before it. `*rest` is the text after it. */
static bool read_number(const char *text, bool whole, double *number, const char **rest) {
    char *end;
    if (!isdigit((unsigned char)text[0])) {
        return false;
    }
    errno = 0;
    *number = whole ? (double)strtoull(text, &end, 10) : strtod(text, &end);
    *rest = end;
    return errno == 0;
}

static const char *const units[] = {"", "KiB", "MiB", "GiB"}; /* each is 1024 of the one before */

static bool read_unit(const char *text, double *factor) {
    *factor = 1;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (strcmp(text, units[i]) == 0) {
            return true;
        }
        *factor *= KIB;
    }
    return false;
}

static bool set_number(struct server_options *options, const struct option *option,
                       const char *text) {
    void *place = (char *)options + option->offset;
    double number = 0, unit = 1;
    const char *rest = text;
    if (!read_number(text, option->kind != KIND_REAL, &number, &rest)) {
        return false;
    }
    if (option->kind == KIND_BYTES ? !read_unit(rest, &unit) : *rest != '\0') {
        return false;
    }
    number *= unit;
    if (!(number >= option->minimum && number <= option->maximum) ||
        number > (double)(SIZE_MAX / 2)) {
        return false;
    }
    if (option->kind == KIND_REAL) {
        *(double *)place = number;
    } else if (option->kind == KIND_BYTES) {
        *(size_t *)place = (size_t)number;
    } else {
        *(unsigned *)place = (unsigned)number;
    }
    return true;
}

/* Every choice has two words; the second one sets the value to true. */
static bool set_choice(struct server_options *options, const struct option *option,
                       const char *text) {
    const size_t first = strcspn(option->range, "|");
    const bool second = strcmp(text, option->range + first + 1) == 0;
    *(bool *)((char *)options + option->offset) = second;
    return second || (strlen(text) == first && memcmp(text, option->range, first) == 0);
}

/* Describes the allowed values of an option, for a message. */
static void describe_rule(const struct option *option, char *out, size_t size) {
    const char *const kind = option->kind == KIND_UNSIGNED  ? "a whole number in "
                             : option->kind == KIND_SECONDS ? "a whole number of seconds in "
                             : option->kind == KIND_BYTES   ? "a whole number of bytes in "
                             : option->kind == KIND_REAL    ? "a number in "
                                                            : ""; /* the range says all */
    const int first = (int)strcspn(option->range, "|");
    const bool choice = option->kind == KIND_CHOICE; /* every choice has two words */
    const char *const example =
        option->kind == KIND_ADDRESS ? ", as in 127.0.0.1"
        : option->kind == KIND_ORIGINS
            ? ", in lower case and without a path, as in https://a.example,http://b:8888"
            : "";
    snprintf(out, size, "%s%.*s%s%s%s", kind, first, option->range, choice ? " or " : "",
             choice ? option->range + first + 1 : "", example);
}

/* Sets an option. `source` is the flag or the variable that the value came from. Returns false with
 * a message in error[0..size) if the value is wrong. */
static bool set_value(struct server_options *options, const struct option *option,
                      const char *source, const char *text, char *error, size_t size) {
    bool valid;
    char rule[192];
    if (option->kind <= KIND_TEXT) {
        valid = option->kind == KIND_ADDRESS   ? is_address(text)
                : option->kind == KIND_ORIGINS ? are_origins(option, text)
                                               : text[0] != '\0';
        if (valid) {
            *(const char **)((char *)options + option->offset) = text;
        }
    } else if (option->kind == KIND_CHOICE) {
        valid = set_choice(options, option, text);
    } else {
        valid = set_number(options, option, text);
    }
    if (!valid) {
        describe_rule(option, rule, sizeof rule);
        snprintf(error, size, "%s must be %s, not \"%s\"%s", source, rule, text,
                 option->kind == KIND_BYTES ? "; its units are KiB, MiB and GiB, as in 64MiB" : "");
    }
    return valid;
}

/* -------------------------------------------------------------------------------- ATTENTION_ISA */

/* Writes the names of the row kernels that this CPU runs, such as "scalar, avx2". */
static void list_kernels(const attn_build_info *build, char *out, size_t size) {
    size_t length = 0;
    out[0] = '\0';
    for (size_t i = 0; build->usable_kernels[i] != NULL && length < size; i++) {
        length += (size_t)snprintf(out + length, size - length, "%s%s", i > 0 ? ", " : "",
                                   build->usable_kernels[i]);
    }
}

/* Returns false, with a message, if ATTENTION_ISA names kernels that cannot run here. A user who
 * chooses kernels must not get others without notice. */
static bool check_kernels(char *error, size_t size) {
    const attn_build_info build = attn_build();
    const char *value = getenv("ATTENTION_ISA");
    char names[64];
    if (build.kernels_refused) {
        list_kernels(&build, names, sizeof names);
        snprintf(error, size, "ATTENTION_ISA is \"%s\", but this machine runs %s",
                 value != NULL ? value : "", names);
    }
    return !build.kernels_refused;
}

/* ------------------------------------------------------------------------------------- sources */

/* The variable from which clients take their key. */
static const char client_key[] = "ATTENTIOND_KEY";

/* Returns whether a variable is one of those that Kubernetes and Docker set for a service whose
 * name begins with "attentiond", such as ATTENTIOND_SERVICE_HOST and ATTENTIOND_PORT_80_TCP. */
static bool is_of_service(const char *name, size_t size, const char *value) {
    static const char port[] = "_PORT";
    char text[256];
    snprintf(text, sizeof text, "%.*s", (int)size, name);
    for (const char *at = strstr(text, port); at != NULL; at = strstr(at + 1, port)) {
        const char *digits = at + sizeof port;
        const size_t count = strspn(at[sizeof port - 1] == '_' ? digits : "", "0123456789");
        if ((at[sizeof port - 1] == '\0' && strstr(value, "://") != NULL) ||
            (count > 0 && digits[count] == '_')) {
            return true;
        }
    }
    return strstr(text, "_SERVICE_HOST") != NULL || strstr(text, "_SERVICE_PORT") != NULL;
}

/* Returns whether a variable is for programs beside the daemon: a client reads where its daemon is
 * from ATTENTIOND_URL, and a test where the program is from ATTENTIOND_BIN. */
static bool is_of_others(const char *name, size_t size) {
    static const char *const ends[] = {"_URL", "_BIN"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        const size_t end = strlen(ends[i]);
        if (size > end && memcmp(name + size - end, ends[i], end) == 0) {
            return true;
        }
    }
    return false;
}

/* Refuses a variable that is no option but begins as options do, or whose name is nearly that of
 * one: an option that is lost may leave the service open, as that of the keys. */
static bool check_variable(const char *entry, char *error, size_t size) {
    static const char prefix[] = "ATTENTIOND";
    const char *names[OPTION_COUNT], *value = strchr(entry, '=');
    char name[64];
    size_t count = 0, edits;
    const size_t length = value != NULL ? (size_t)(value - entry) : strlen(entry);
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        if (table[i].variable != NULL) {
            names[count++] = table[i].variable;
        }
    }
    snprintf(name, sizeof name, "%.*s", (int)length, entry);
    const char *meant = codec_nearest(name, names, count, &edits);
    const bool own = strncasecmp(entry, prefix, sizeof prefix - 1) == 0;
    if ((meant == NULL && !own) || (meant != NULL && strcmp(name, meant) == 0) ||
        is_of_service(entry, length, value != NULL ? value + 1 : "") ||
        is_of_others(entry, length) || strcmp(name, client_key) == 0) {
        return true;
    }
    snprintf(error, size, "the environment variable %s is no option%s%s%s; --help lists all", name,
             meant != NULL ? "; did you mean " : "", meant != NULL ? meant : "",
             meant != NULL ? "?" : "");
    return false;
}

static bool check_environment(char *error, size_t size) {
    for (char **entry = environ; entry != NULL && *entry != NULL; entry++) {
        if (!check_variable(*entry, error, size)) {
            return false;
        }
    }
    return true;
}

/* Returns whether the service would be open if this option were not set. */
static bool protects(const struct option *option) {
    return option->offset == AT(http.api_key_file) || option->offset == AT(http.tls_certificate) ||
           option->offset == AT(http.tls_key);
}

/* An empty variable counts as unset, because scripts often set one with `${NAME:-}`. One that
 * protects the service is refused, because its path may have been lost in the same way. */
static bool read_environment(struct server_options *options, char *error, size_t size) {
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        const char *text = table[i].variable != NULL ? getenv(table[i].variable) : NULL;
        if (text != NULL && text[0] == '\0' && protects(&table[i])) {
            snprintf(error, size, "%s is empty: unset it, or give it %s", table[i].variable,
                     table[i].range);
            return false;
        }
        if (text == NULL || text[0] == '\0') {
            continue;
        }
        /* If a Kubernetes Service is named "attentiond", each pod of its namespace gets a variable
         * like ATTENTIOND_PORT=tcp://10.0.0.7:80. */
        if (table[i].offset == AT(http.port) && strncmp(text, "tcp://", 6) == 0) {
            continue;
        }
        if (!set_value(options, &table[i], table[i].variable, text, error, size)) {
            return false;
        }
    }
    return true;
}

/* Returns the option that `argument` names, which may go on with '=' and a value; NULL if there is
 * no such option. */
static const struct option *find_option(const char *argument) {
    size_t length = strcspn(argument, "=");
    if (strcmp(argument, "-h") == 0) {
        argument = "--help";
        length = strlen(argument);
    }
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        if (strlen(table[i].flag) == length && memcmp(table[i].flag, argument, length) == 0) {
            return &table[i];
        }
    }
    return NULL;
}

/* Returns the option that an unknown argument probably stands for, or NULL: the one that other
 * programs have under this name, or the one with the nearest name. */
static const char *find_meant(const char *argument) {
    static const struct {
        const char *foreign, *flag;
    } names[] = {{"--host", "--address"},
                 {"--bind", "--address"},
                 {"--listen", "--address"},
                 {"--threads", "--workers"},
                 {"--cert", "--tls-certificate"},
                 {"-p", "--port"},
                 {"-v", "--version"},
                 {"-V", "--version"}};
    const char *flags[OPTION_COUNT];
    const size_t size = strcspn(argument, "=");
    char name[40];
    size_t edits;
    snprintf(name, sizeof name, "%.*s", (int)(size < sizeof name ? size : 0), argument);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(name, names[i].foreign) == 0) {
            return names[i].flag;
        }
    }
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        flags[i] = table[i].flag;
    }
    return codec_nearest(name, flags, OPTION_COUNT, &edits);
}

/* Says that there is no such option, and which one is meant. */
static void refuse_option(const char *argument, char *error, size_t size) {
    const char *meant = find_meant(argument);
    if (argument[0] != '-') {
        snprintf(
            error, size,
            "\"%s\" is no option: each one begins with --, as in --port 9000; --help lists all",
            argument);
    } else if (meant != NULL) {
        snprintf(error, size, "there is no option \"%s\"; did you mean %s? --help lists all",
                 argument, meant);
    } else {
        snprintf(error, size, "there is no option \"%s\"; --help lists all", argument);
    }
}

enum options_result options_read(struct server_options *options, int argc, char *const argv[],
                                 char *error, size_t size) {
    *options = defaults();
    options->container = process_limits("");
    options_fit(options);
    if (!check_environment(error, size) || !read_environment(options, error, size) ||
        !check_kernels(error, size)) {
        return OPTIONS_BAD;
    }
    for (int i = 1; i < argc; i++) {
        const struct option *option = find_option(argv[i]);
        const char *value = strchr(argv[i], '=');
        if (option == NULL) {
            refuse_option(argv[i], error, size);
            return OPTIONS_BAD;
        }
        if (option->kind >= KIND_SWITCH) {
            if (value != NULL) {
                snprintf(error, size, "%s takes no value, not \"%s\"", option->flag, value + 1);
                return OPTIONS_BAD;
            }
            if (option->kind != KIND_SWITCH) {
                return option->kind == KIND_HELP ? OPTIONS_HELP : OPTIONS_VERSION;
            }
            *(bool *)((char *)options + option->offset) = true;
            continue;
        }
        if (value == NULL && i + 1 == argc) {
            char rule[192];
            describe_rule(option, rule, sizeof rule);
            snprintf(error, size, "%s needs a value: %s", option->flag, rule);
            return OPTIONS_BAD;
        }
        value = value != NULL ? value + 1 : argv[++i];
        if (!set_value(options, option, option->flag, value, error, size)) {
            return OPTIONS_BAD;
        }
    }
    if ((options->http.tls_certificate == NULL) != (options->http.tls_key == NULL)) {
        snprintf(error, size, "%s needs %s, too",
                 options->http.tls_key == NULL ? "--tls-certificate" : "--tls-key",
                 options->http.tls_key == NULL ? "--tls-key" : "--tls-certificate");
        return OPTIONS_BAD;
    }
    if (getenv(client_key) != NULL && options->http.api_key_file == NULL) {
        snprintf(error, size,
                 "%s is the key of a client; the keys of the daemon stand in the file that "
                 "ATTENTIOND_API_KEY_FILE names",
                 client_key);
        return OPTIONS_BAD;
    }
    return OPTIONS_READY;
}

/* ---------------------------------------------------------------------------------------- help */

static void format_bytes(size_t bytes, char *out, size_t size) {
    size_t unit = 0;
    while (unit < 3 && bytes >= 1024 && bytes % 1024 == 0) {
        bytes /= 1024;
        unit++;
    }
    snprintf(out, size, "%zu%s", bytes, units[unit]);
}

static void format_default(const struct server_options *options, const struct option *option,
                           char *out, size_t size) {
    const void *place = (const char *)options + option->offset;
    if (option->kind <= KIND_TEXT) {
        const char *text = *(const char *const *)place;
        snprintf(out, size, "%s", text != NULL ? text : "none");
    } else if (option->kind == KIND_CHOICE) { /* the default is the first word */
        snprintf(out, size, "%.*s", (int)strcspn(option->range, "|"), option->range);
    } else if (option->kind == KIND_BYTES) {
        format_bytes(*(const size_t *)place, out, size);
    } else if (option->kind == KIND_REAL) {
        snprintf(out, size, "%g", *(const double *)place);
    } else {
        snprintf(out, size, "%u", *(const unsigned *)place);
    }
}

void options_print_help(FILE *out) {
    struct server_options options = defaults();
    options.container.cores = process_limits("").cores;
    options_fit(&options);
    fprintf(out,
            "usage: attentiond [OPTION VALUE | OPTION=VALUE]...\n\n"
            "attentiond computes attention over HTTP. Each option has a flag and an environment "
            "variable.\n"
            "The flag takes precedence. Sizes are in bytes, or have one of the units KiB, MiB and "
            "GiB.\n"
            "SIGHUP opens the log file again and reads the keys and the certificate again.\n\n");
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        char value[64];
        fprintf(out, "  %-18s %s\n", table[i].flag, table[i].help);
        if (table[i].variable == NULL) {
            continue;
        }
        format_default(&options, &table[i], value, sizeof value);
        fprintf(out, "  %-18s %s, default %s, %s\n", "", table[i].variable, value, table[i].range);
    }
    const attn_build_info build = attn_build();
    char names[64];
    list_kernels(&build, names, sizeof names);
    fprintf(out,
            "\nThe environment variable ATTENTION_ISA chooses the vector instructions.\n"
            "This machine runs %s. %s is in use.\n",
            names, build.kernels);
}
