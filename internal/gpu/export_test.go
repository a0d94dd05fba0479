package gpu

// What the tests of package gpu_test see of the table behind Name.

// NamesText is the embedded table.
func NamesText() string { return namesTable }

// LatestName is what the newest pci.ids calls d, "" when it does not know it.
func LatestName(d DeviceID) string { return nameIn(tableRow(d), latest) }
