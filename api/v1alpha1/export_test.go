package v1alpha1

// What the ledger demands of strings.
const (
	MaxNode         = maxNode
	MaxResourceName = maxResourceName
	MaxMessage      = maxMessage
)

// RefusalCode is what it demands of codes.
var RefusalCode = refusalCode
