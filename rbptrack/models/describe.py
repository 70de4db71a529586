"""The fields of a measurement that follow from its model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rbptrack.models.quantised import describe_quantisation

if TYPE_CHECKING:
    from rbptrack.models.causal import CausalModel
    from rbptrack.models.parameters import ParameterCounts


def describe_model(model: CausalModel) -> dict[str, Any]:
    """Return the fields of a measurement that the loaded model determines."""
    fields: dict[str, Any] = {
        "architecture": model.architecture,
        "weights": model.quantisation,
        "non_embedding_params": model.non_embedding_params,
        "total_params": model.total_params,
        "device": str(model.device),
    }
    if model.reference is not None:
        fields["reference_params"] = model.reference.model.total_params
    return fields


def describe_architecture(architecture: Any, parameters: ParameterCounts) -> dict[str, Any]:
    """Return the fields of a measurement that the transformers config of a model determines, for a model elsewhere."""
    return {
        "architecture": str(architecture.model_type),
        "weights": describe_quantisation(architecture),
        "non_embedding_params": parameters.non_embedding,
        "total_params": parameters.total,
    }
