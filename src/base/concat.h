// REKINDLE_CONCAT(a, b): one name of two, after macros in them are expanded, such as __LINE__ or __COUNTER__.
#pragma once

#define REKINDLE_CONCAT_INNER(a, b) a##b
#define REKINDLE_CONCAT(a, b) REKINDLE_CONCAT_INNER(a, b)
